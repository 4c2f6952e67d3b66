<?php
// Plays the part of tests/hosts/host.c, which explains it, in PHP:
// php -d sqlite3.extension_dir=FOLDER host.php FILE
// A call goes through querySingle(), the one method that executes a statement once. It takes no
// arguments, so they are written into the SQL.
$connections = [];

function literal(string $argument): string
{
    $value = substr($argument, 2);
    return match ($argument[0]) {
        'n' => 'NULL',
        'i' => $value,
        'r' => ['NaN' => 'NULL', 'Infinity' => '9e999', '-Infinity' => '-9e999'][$value] ?? $value,
        't' => "'" . SQLite3::escapeString($value) . "'",
    };
}

function row(array $values): void
{
    echo "row\t", implode("\t", array_map(fn ($value) => $value ?? 'NULL', $values)), "\n";
}

function call(SQLite3 $db, string $sql, array $arguments): void
{
    foreach ($arguments as $argument) {
        $at = strpos($sql, '?');
        $sql = substr_replace($sql, literal($argument), $at, 1);
    }
    if (!preg_match('/^(SELECT|PRAGMA)/', $sql)) {
        $db->exec($sql);
    } elseif (str_contains($sql, 'fence_')) {
        // The first row, whole; a call has one.
        row($db->querySingle($sql, true));
    } else {
        $rows = $db->query($sql);
        while ($row = $rows->fetchArray(SQLITE3_NUM)) {
            row($row);
        }
    }
}

while (($line = fgets(STDIN)) !== false) {
    $fields = explode("\t", rtrim($line, "\n"));
    [$i, $sql] = $fields;
    $arguments = array_slice($fields, 2);
    try {
        if ($sql === '.open') {
            $connections[$i] = new SQLite3(substr($arguments[0], 2));
            $connections[$i]->enableExceptions(true);
            $connections[$i]->loadExtension($argv[1]);
        } elseif ($sql === '.close') {
            $connections[$i]->close();
        } else {
            call($connections[$i], $sql, $arguments);
        }
        echo "ok\n";
    } catch (Exception $e) {
        echo "error\t", $connections[$i]->lastExtendedErrorCode(), "\t", $e->getMessage(), "\n";
    }
}
