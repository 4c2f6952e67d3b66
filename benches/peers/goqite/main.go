// One worker process of goqite: a JSON request a line in, a JSON answer a line out.
package main

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	_ "github.com/mattn/go-sqlite3"
	"maragu.dev/goqite"
)

type request struct {
	Do, Folder  string
	Full, Fresh bool
	TTL         float64
	N           int
}

type answer = map[string]any

var (
	ctx   = context.Background()
	db    *sql.DB
	queue *goqite.Queue
	held  *goqite.Message
)

func main() {
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		var r request
		check(json.Unmarshal(input.Bytes(), &r))
		reply, err := respond(r)
		if err != nil {
			reply = answer{"error": err.Error()}
		}
		line, err := json.Marshal(reply)
		check(err)
		fmt.Println(string(line))
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func respond(r request) (answer, error) {
	switch r.Do {
	case "open":
		return open(r)
	case "enqueue", "fill":
		start := time.Now()
		err := send(r)
		return answer{"seconds": time.Since(start).Seconds()}, err
	case "hold":
		for i := 0; i < r.N; i++ {
			if _, err := queue.Receive(ctx); err != nil {
				return nil, err
			}
		}
		return answer{}, nil
	case "drain":
		return drain()
	case "claims":
		return claims(r.N)
	case "claim":
		var err error
		held, err = queue.Receive(ctx)
		return answer{"claimed": held != nil}, err
	case "complete", "finish":
		return answer{"accepted": nil}, queue.Delete(ctx, held.ID)
	case "state":
		var rows int
		err := db.QueryRow("SELECT count(*) FROM goqite").Scan(&rows)
		return answer{"state": map[bool]string{true: "message there", false: "message gone"}[rows == 1]}, err
	}
	return answer{}, nil
}

// As its README opens a database: one connection.
func open(r request) (answer, error) {
	synchronous := map[bool]string{true: "FULL", false: "NORMAL"}[r.Full]
	var err error
	db, err = sql.Open("sqlite3", r.Folder+"/jobs.db?_journal=WAL&_timeout=30000&_fk=true&_sync="+synchronous)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	db.SetMaxIdleConns(1)
	if r.Fresh {
		schema, err := os.ReadFile(os.Getenv("PEERS_GOQITE") + "/schema.sql")
		if err != nil {
			return nil, err
		}
		if _, err := db.Exec(string(schema)); err != nil {
			return nil, err
		}
	}
	timeout := time.Duration(r.TTL * float64(time.Second))
	queue = goqite.New(goqite.NewOpts{DB: db, Name: "q", Timeout: timeout, MaxReceive: 1000})
	var version, journal string
	var level int
	row := db.QueryRow("SELECT sqlite_version(), journal_mode, synchronous FROM pragma_journal_mode, pragma_synchronous")
	err = row.Scan(&version, &journal, &level)
	facts := os.Getenv("PEERS_GOQITE_VERSION") + ", " + runtime.Version() + ", SQLite " + version
	durability := journal + ", synchronous=" + []string{"OFF", "NORMAL", "FULL", "EXTRA"}[level]
	return answer{"version": facts, "durability": durability, "names": false, "expires": "the timeout runs out"}, err
}

func send(r request) error {
	if r.Do == "enqueue" {
		for i := 0; i < r.N; i++ {
			if err := queue.Send(ctx, goqite.Message{Body: []byte("x")}); err != nil {
				return err
			}
		}
		return nil
	}
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	for i := 0; i < r.N; i++ {
		if err := queue.SendTx(ctx, tx, goqite.Message{Body: []byte("x")}); err != nil {
			return err
		}
	}
	return tx.Commit()
}

func drain() (answer, error) {
	ids, busy := []string{}, 0
	for {
		m, err := queue.Receive(ctx)
		if locked(err) {
			busy++
			continue
		}
		if err != nil || m == nil {
			return answer{"ids": ids, "busy": busy}, err
		}
		ids = append(ids, string(m.ID))
		for err = queue.Delete(ctx, m.ID); locked(err); err = queue.Delete(ctx, m.ID) {
			busy++
		}
		if err != nil {
			return nil, err
		}
	}
}

func locked(err error) bool {
	return err != nil && strings.Contains(err.Error(), "locked")
}

func claims(n int) (answer, error) {
	seconds := []float64{}
	for i := 0; i < n; i++ {
		start := time.Now()
		m, err := queue.Receive(ctx)
		seconds = append(seconds, time.Since(start).Seconds())
		if err != nil {
			return nil, err
		}
		if m == nil {
			return nil, fmt.Errorf("nothing to claim")
		}
	}
	return answer{"seconds": seconds}, nil
}
