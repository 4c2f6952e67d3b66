# Plays the part of tests/hosts/host.c, which explains it, in Perl: host.pl EXTENSION.
# Arguments are bound as DBD::SQLite does it by default: as text.
use strict;
use warnings;
use DBI;
use DBD::SQLite::Constants ':dbd_sqlite_string_mode';

my ($extension) = @ARGV;
my %connections;

sub connection {
    my ($file) = @_;
    my $db = DBI->connect(
        "dbi:SQLite:dbname=$file", '', '',
        {
            RaiseError => 1,
            PrintError => 0,
            sqlite_string_mode => DBD_SQLITE_STRING_MODE_UNICODE_STRICT,
            sqlite_extended_result_codes => 1,
        }
    );
    $db->sqlite_busy_timeout(0);
    $db->sqlite_enable_load_extension(1);
    $db->sqlite_load_extension($extension);
    return $db;
}

while (my $line = <STDIN>) {
    chomp $line;
    my ($i, $sql, @arguments) = split /\t/, $line, -1;
    my @values = map { /^n/ ? undef : substr($_, 2) } @arguments;
    eval {
        if ($sql eq '.open') {
            $connections{$i} = connection(@values);
        } elsif ($sql eq '.close') {
            $connections{$i}->disconnect;
        } else {
            my $statement = $connections{$i}->prepare($sql);
            $statement->execute(@values);
            if ($statement->{NUM_OF_FIELDS}) {
                while (my $row = $statement->fetchrow_arrayref) {
                    print join("\t", 'row', map { $_ // 'NULL' } @$row), "\n";
                }
            }
        }
        print "ok\n";
        1;
    } or print join("\t", 'error', DBI->err, DBI->errstr), "\n";
}
