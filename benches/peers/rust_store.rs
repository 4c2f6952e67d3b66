//! One worker process of the Rust API's `Store`, for the comparison with other queues: a JSON
//! request a line in, a JSON answer a line out. Started by `run.py`.
use fence::{Durability, Lease, Options, Store};
use serde_json::{json, Value};
use std::io::{BufRead, Write};
use std::path::Path;
use std::time::{Duration, Instant};

type Answer = Result<Value, Box<dyn std::error::Error>>;

fn main() {
    let mut worker: Option<Worker> = None;
    for line in std::io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let answer = match (request["do"].as_str().unwrap(), &mut worker) {
            ("open", _) => Worker::open(&request).map(|(opened, facts)| {
                worker = Some(opened);
                facts
            }),
            (command, Some(worker)) => worker.answer(command, &request),
            (_, None) => Err("not open".into()),
        };
        let answer = answer.unwrap_or_else(|e| json!({"error": e.to_string()}));
        println!("{answer}");
        std::io::stdout().flush().unwrap();
    }
}

struct Worker {
    store: Store,
    name: String,
    ttl: f64,
    lease: Option<Lease>,
}

impl Worker {
    fn open(request: &Value) -> Result<(Self, Value), Box<dyn std::error::Error>> {
        let mut options = Options::default();
        options.busy_timeout = Duration::from_secs(30);
        if request["full"] == false {
            options.durability = Durability::Normal;
        }
        let path = Path::new(request["folder"].as_str().unwrap()).join("jobs.db");
        let store = Store::open_with(path, options)?;
        store.init_queue()?;
        let name = request["worker"].as_str().unwrap().to_owned();
        let ttl = request["ttl"].as_f64().unwrap();
        let version = format!(
            "sqlite-fence v{}, its own SQLite {}",
            env!("CARGO_PKG_VERSION"),
            rusqlite::version()
        );
        // The store keeps its connection to itself; these are what it documents.
        let durability = format!("wal, synchronous={:?}", options.durability).to_lowercase();
        let facts = json!({"version": version, "durability": durability, "names": true,
            "expires": "the lease runs out"});
        Ok((Worker { store, name, ttl, lease: None }, facts))
    }

    fn claim(&self) -> fence::Result<Option<Lease>> {
        self.store.claim_next("", &self.name, None, self.ttl)
    }

    fn answer(&mut self, command: &str, request: &Value) -> Answer {
        let n = request["n"].as_u64().unwrap_or(0);
        let id = |i: u64| format!("job{i:08}");
        Ok(match command {
            "enqueue" => {
                let start = Instant::now();
                for i in 0..n {
                    self.store.enqueue(&id(i))?;
                }
                json!({"seconds": start.elapsed().as_secs_f64()})
            }
            "fill" => {
                self.store.enqueue_many(&(0..n).map(id).collect::<Vec<_>>())?;
                json!({})
            }
            "hold" => {
                for _ in 0..n {
                    self.claim()?;
                }
                json!({})
            }
            "drain" => {
                let mut ids = Vec::new();
                while let Some(lease) = self.claim()? {
                    lease.complete(None, "ok")?;
                    ids.push(lease.id().to_owned());
                }
                json!({"ids": ids, "busy": 0})
            }
            "claims" => {
                let mut seconds = Vec::new();
                for _ in 0..n {
                    let start = Instant::now();
                    let lease = self.claim()?;
                    seconds.push(start.elapsed().as_secs_f64());
                    lease.ok_or("nothing to claim")?;
                }
                json!({"seconds": seconds})
            }
            "claim" => {
                self.lease = self.claim()?;
                json!({"claimed": self.lease.is_some()})
            }
            "complete" => self.complete(request["result"].as_str().unwrap())?,
            "finish" => self.complete("from B")?,
            "expire" | "close" => json!({}),
            "state" => {
                let job = self.store.state(&id(0))?.ok_or("no job")?;
                let (owner, result) = (job.owner.unwrap_or_default(), job.result);
                let result = result.unwrap_or("None".into());
                json!({"state": format!(
                    "owner {owner}, fence {}, result {result}, done {}", job.fence, job.done)})
            }
            _ => return Err(format!("no command {command}").into()),
        })
    }

    fn complete(&self, result: &str) -> Answer {
        let lease = self.lease.as_ref().ok_or("nothing claimed")?;
        Ok(json!({"accepted": lease.complete(None, result)?}))
    }
}
