//! What a lease of the Rust API tells of itself.
use fence::Store;

fn store() -> Store {
    let store = Store::open(":memory:").unwrap();
    assert!(store.enqueue("j").unwrap());
    store
}

#[test]
fn a_renewal_moves_the_end_that_the_lease_tells() {
    let store = store();
    let mut lease = store.claim("j", "w", 100.0, 10.0).unwrap().expect("claimable");
    assert_eq!(lease.until(), 110.0);
    assert!(lease.renew(105.0, 20.0).unwrap());
    assert_eq!(lease.until(), 125.0);
    assert_eq!(store.state("j").unwrap().unwrap().until, 125.0);
    assert!(!lease.renew(125.0, 20.0).unwrap(), "it has ended");
    assert_eq!(lease.until(), 125.0);
    lease.renew(126.0, -1.0).unwrap_err();
    assert_eq!(lease.until(), 125.0);
}

/// Without a time the end is read off this machine's clock, a moment after the database did.
#[test]
fn a_renewal_by_the_clock_moves_the_end_too() {
    let store = store();
    let mut lease = store.claim("j", "w", None, 10.0).unwrap().expect("claimable");
    let stored = || store.state("j").unwrap().unwrap().until;
    assert_eq!(lease.until(), stored());
    let first = lease.until();
    assert!(lease.renew(None, 500.0).unwrap());
    assert!(lease.until() >= stored() && lease.until() > first + 480.0, "{lease:?}");
}

#[test]
fn it_shows_job_owner_fence_and_file() {
    let store = store();
    let lease = store.claim("j", "w", 100.0, 10.0).unwrap().expect("claimable");
    let shown = format!("{lease:?}");
    for part in ["id: \"j\"", "owner: \"w\"", "fence: 1", "until: 110.0", "path: \":memory:\""] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    let in_a_write = lease.write(101.0, |tx| Ok(format!("{tx:?}"))).unwrap();
    assert_eq!(in_a_write, format!("Transaction {{ lease: {shown}, .. }}"));
}
