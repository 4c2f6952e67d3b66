//! What is on the disk after a power cut. Whatever was written and not yet synced may be there or
//! not, in part and in any order; names that were made or deleted likewise.
use std::collections::BTreeMap;
use std::path::Path;

use crate::bench::files;
use crate::common::tier::Random;

pub type Inode = usize;

#[derive(Clone, Debug)]
pub enum Event {
    Create(String, Inode),
    Write(Inode, usize, Box<[u8]>),
    Truncate(Inode, usize),
    /// Makes what was written to the file durable, and with `true` all names too.
    Sync(Inode, bool),
    /// With `true` all names are durable afterwards.
    Delete(String, bool),
    /// The operation so far under way was answered.
    Answered,
}

/// Writes down the events of a directory.
pub struct Recorder {
    /// What was on the disk at first.
    initial: Vec<(String, Vec<u8>)>,
    names: BTreeMap<String, Inode>,
    inodes: usize,
    pub events: Vec<Event>,
}

impl Recorder {
    pub fn new(dir: &Path) -> Recorder {
        let initial = files(dir);
        let names = initial.iter().enumerate().map(|(i, (name, _))| (name.clone(), i)).collect();
        Recorder { names, inodes: initial.len(), initial, events: Vec::new() }
    }

    pub fn create(&mut self, name: &str) -> Inode {
        let inode = self.inodes;
        self.inodes += 1;
        self.names.insert(name.into(), inode);
        inode
    }

    pub fn inode(&self, name: &str) -> Inode {
        self.names[name]
    }

    pub fn delete(&mut self, name: &str) {
        self.names.remove(name);
    }
}

/// What is certainly on the disk, and what may be.
pub struct Durable<'a> {
    names: BTreeMap<String, Inode>,
    contents: Vec<Vec<u8>>,
    pending: Vec<&'a Event>,
}

pub type Image = BTreeMap<String, Vec<u8>>;

impl<'a> Durable<'a> {
    pub fn new(recorder: &Recorder) -> Self {
        let names = recorder.initial.iter().enumerate().map(|(i, (name, _))| (name.clone(), i));
        let mut contents: Vec<_> =
            recorder.initial.iter().map(|(_, bytes)| bytes.clone()).collect();
        contents.resize(recorder.inodes, Vec::new());
        Durable { names: names.collect(), contents, pending: Vec::new() }
    }

    pub fn pass(&mut self, event: &'a Event) {
        match event {
            Event::Answered => {}
            Event::Sync(inode, directory) => self.settle(Some(*inode), *directory),
            Event::Delete(_, sync) => {
                self.pending.push(event);
                if *sync {
                    self.settle(None, true);
                }
            }
            _ => self.pending.push(event),
        }
    }

    fn settle(&mut self, synced: Option<Inode>, directory: bool) {
        for event in std::mem::take(&mut self.pending) {
            let settled = match event {
                Event::Write(inode, ..) | Event::Truncate(inode, _) => Some(*inode) == synced,
                _ => directory,
            };
            if settled {
                apply(event, usize::MAX, &mut self.names, &mut self.contents);
            } else {
                self.pending.push(event);
            }
        }
    }

    /// The disk with those of the pending events for which `part` gives some bytes or more.
    fn image(&self, part: impl Fn(usize) -> usize) -> Image {
        let (mut names, mut contents) = (self.names.clone(), self.contents.clone());
        for (i, event) in self.pending.iter().enumerate() {
            let part = part(i);
            if part > 0 {
                apply(event, part, &mut names, &mut contents);
            }
        }
        names.into_iter().map(|(name, i)| (name, std::mem::take(&mut contents[i]))).collect()
    }

    /// None, all and each prefix of what is pending, each prefix with a torn write at its end, and
    /// some parts at random.
    pub fn images(&self, random: &mut Random, at_random: usize) -> Vec<Image> {
        const ALL: usize = usize::MAX;
        let mut images = Vec::new();
        for length in 0..=self.pending.len() {
            images.push(self.image(|i| if i < length { ALL } else { 0 }));
            if let Some(torn) = self.pending.get(length).and_then(|event| torn(event)) {
                images.push(self.image(|i| match i.cmp(&length) {
                    std::cmp::Ordering::Less => ALL,
                    std::cmp::Ordering::Equal => torn,
                    std::cmp::Ordering::Greater => 0,
                }));
            }
        }
        if self.pending.len() > 1 {
            for _ in 0..at_random {
                let parts: Vec<usize> = self
                    .pending
                    .iter()
                    .map(|event| match random.below(8) {
                        0..3 => 0,
                        3 => torn(event).unwrap_or(0),
                        _ => ALL,
                    })
                    .collect();
                images.push(self.image(|i| parts[i]));
            }
        }
        images
    }
}

/// How many bytes of a write reach the disk when it is torn: some sectors, or half of one.
fn torn(event: &Event) -> Option<usize> {
    const SECTOR: usize = 512;
    match event {
        Event::Write(_, _, bytes) if bytes.len() > SECTOR => {
            Some((bytes.len() / 2).next_multiple_of(SECTOR).min(bytes.len() - 1))
        }
        Event::Write(_, _, bytes) if bytes.len() > 1 => Some(bytes.len() / 2),
        _ => None,
    }
}

fn apply(
    event: &Event,
    part: usize,
    names: &mut BTreeMap<String, Inode>,
    contents: &mut [Vec<u8>],
) {
    match event {
        Event::Create(name, inode) => {
            names.insert(name.clone(), *inode);
        }
        Event::Delete(name, _) => {
            names.remove(name);
        }
        Event::Write(inode, offset, bytes) => {
            let bytes = &bytes[..part.min(bytes.len())];
            let content = &mut contents[*inode];
            content.resize(content.len().max(offset + bytes.len()), 0);
            content[*offset..offset + bytes.len()].copy_from_slice(bytes);
        }
        Event::Truncate(inode, size) => contents[*inode].resize(*size, 0),
        Event::Sync(..) | Event::Answered => {}
    }
}
