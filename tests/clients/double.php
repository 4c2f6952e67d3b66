<?php
// Claims in four ways, each on a job of its own, and prints what the caller is told and the fence
// that the job has then: php -d sqlite3.extension_dir=FOLDER double.php FILE
$db = new SQLite3(':memory:');
$db->loadExtension($argv[1]);
$db->querySingle('SELECT fence_init()');

function shown(mixed $value): string
{
    return $value === null ? 'NULL' : (string) $value;
}

$claim = fn (string $id) => "SELECT fence_claim('$id', 'A', 0, 10)";
$ways = [
    'querySingle' => fn ($id) => $db->querySingle($claim($id)),
    'query and fetchArray' => fn ($id) => $db->query($claim($id))->fetchArray(SQLITE3_NUM)[0],
    'prepare, execute and fetchArray' =>
        fn ($id) => $db->prepare($claim($id))->execute()->fetchArray(SQLITE3_NUM)[0],
    'exec' => fn ($id) => $db->exec($claim($id)) ? 'true' : 'false',
];
foreach ($ways as $way => $call) {
    $db->querySingle("SELECT fence_enqueue('$way')");
    $told = shown($call($way));
    echo "$way: told $told, fence ", $db->querySingle("SELECT fence FROM jobs WHERE id = '$way'"), "\n";
}
