// Plays the part of tests/hosts/host.c, which explains it, in Go: host EXTENSION.
package main

import (
	"bufio"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/mattn/go-sqlite3"
)

func value(field string) interface{} {
	text := field[2:]
	switch field[0] {
	case 'i':
		number, err := strconv.ParseInt(text, 10, 64)
		check(err)
		return number
	case 'r':
		number, err := strconv.ParseFloat(text, 64)
		check(err)
		return number
	case 't':
		return text
	}
	return nil
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func open(file string) (*sql.DB, error) {
	db, err := sql.Open("fence", "file:"+file+"?_busy_timeout=0")
	if err != nil {
		return nil, err
	}
	// One connection, as the name says, and not a new one for each call.
	db.SetMaxOpenConns(1)
	return db, db.Ping()
}

func call(db *sql.DB, text string, values []interface{}) error {
	rows, err := db.Query(text, values...)
	if err != nil {
		return err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	check(err)
	for rows.Next() {
		found := make([]interface{}, len(columns))
		pointers := make([]interface{}, len(columns))
		for i := range found {
			pointers[i] = &found[i]
		}
		check(rows.Scan(pointers...))
		fmt.Print("row")
		for _, v := range found {
			switch v := v.(type) {
			case nil:
				fmt.Print("\tNULL")
			case []byte:
				fmt.Printf("\t%s", v)
			default:
				fmt.Printf("\t%v", v)
			}
		}
		fmt.Println()
	}
	return rows.Err()
}

func main() {
	sql.Register("fence", &sqlite3.SQLiteDriver{Extensions: []string{os.Args[1]}})
	connections := map[string]*sql.DB{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		fields := strings.Split(lines.Text(), "\t")
		i, text := fields[0], fields[1]
		values := []interface{}{}
		for _, field := range fields[2:] {
			values = append(values, value(field))
		}
		var err error
		switch text {
		case ".open":
			connections[i], err = open(values[0].(string))
		case ".close":
			err = connections[i].Close()
		default:
			err = call(connections[i], text, values)
		}
		var refused sqlite3.Error
		if errors.As(err, &refused) {
			fmt.Printf("error\t%d\t%v\n", refused.ExtendedCode, refused)
		} else {
			check(err)
			fmt.Println("ok")
		}
	}
}
