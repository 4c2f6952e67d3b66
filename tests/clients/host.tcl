# Plays the part of tests/hosts/host.c, which explains it, in Tcl: host.tcl EXTENSION.
package require sqlite3

set extension [lindex $argv 0]

proc call {db sql arguments} {
    # Tcl binds variables by name: the n-th ? is $argument(n).
    for {set n 0} {$n < [llength $arguments]} {incr n} {
        set given [lindex $arguments $n]
        if {![string match n* $given]} { set argument($n) [string range $given 2 end] }
        regsub {\?} $sql "\$argument($n)" sql
    }
    $db eval $sql row {
        set values row
        foreach column $row(*) { lappend values $row($column) }
        puts [join $values \t]
    }
}

while {[gets stdin line] >= 0} {
    set fields [split $line \t]
    lassign $fields i sql
    set db connection$i
    set arguments [lrange $fields 2 end]
    set failed [catch {
        switch -- $sql {
            .open {
                sqlite3 $db [string range [lindex $arguments 0] 2 end]
                $db nullvalue NULL
                $db enable_load_extension 1
                $db eval {SELECT load_extension($extension)}
            }
            .close { $db close }
            default { call $db $sql $arguments }
        }
    } sentence]
    if {$failed} {
        puts "error\t[$db errorcode]\t$sentence"
    } else {
        puts ok
    }
}
