//! Two ranks communicate through shared memory, and an attacker overwrites words of this memory.
#![allow(unsafe_code, reason = "words of a mapping are written by address")]

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use mpj_devices::config::{self, Config};
use mpj_devices::conformance::{LocalCardExchange, Member, Receiving, Sending};
use mpj_devices::{
    Buf, Coalesce, Completion, Doorbell, Engine, Exit, ExitEvent, Fault, HostId, Hosts, KeepAlive, Mode,
    Pattern, Receive, Registry, Roster, Segment, ShmDriver, Site, Source, Started, Target, ViewedMessage,
};
use mpj_pool::{FilledBlock, Pool, SegmentView, SharedStorage};

use crate::input::Input;

const RANKS: u32 = 2;

/// The number of cache lines before the cells of a ring.
const CONTROL_LINES: usize = 4;
/// The number of cells at the start of a ring that are overwritten most often.
const CELLS: usize = 24;

/// The tag of messages in exported blocks.
const EXPORT_TAG: i32 = 9;
/// The number of words of the export table that may be overwritten.
const EXPORT_WORDS: usize = 8;

const ROUNDS: usize = 60;

/// Exclusive limit on the number of words that one burst overwrites.
const BURST: usize = 300;

/// The number of progress passes of one step. Ten times this number completes all pending work.
const PASSES: usize = 40;

struct Rank {
    member: Member,
    roster: Arc<Roster>,
    sends: Vec<Sending<u8>>,
    receives: Vec<(u8, usize, Receiving<u8>)>,
    /// Pending sends of exported blocks, receives of messages that could not be viewed, and viewed messages.
    exported: Vec<Completion>,
    unviewed: Vec<Completion>,
    views: Vec<ViewedMessage>,
}

impl Rank {
    fn pass(&self) {
        let _moved = self.member.engine.progress();
    }

    fn send_exported(&mut self, to: u32, seed: u8) -> Result<(), Fault> {
        let member = &self.member;
        let mut block = FilledBlock::new(member.engine.pool().alloc(len_of(seed)).expect("a block"));
        block.extend_from_slice(&body(seed, len_of(seed))).expect("the block is long enough");
        let block = Arc::new(block);
        let (keep, buf) =
            (Arc::clone(&block) as KeepAlive, Buf::slice((*block).as_ref()).in_region(block.region()));
        // SAFETY: `keep` keeps the block, and nothing else refers to it.
        let source = unsafe { Source::new(buf, Some(keep)) }.expect("whole items");
        drop(block);
        match member.engine.send(&member.world, to, EXPORT_TAG, source, Mode::Standard, Coalesce::Allowed)? {
            Started::Pending(completion) => self.exported.push(completion),
            Started::Done(_) => (),
        }
        Ok(())
    }

    /// Views the next message in a block; receives it without a buffer if it cannot be viewed.
    fn view_next(&mut self, from: u32, overwritten: bool) {
        let engine = &self.member.engine;
        let found =
            engine.improbe(&self.member.world, Pattern { source: from.cast_signed(), tag: EXPORT_TAG });
        let Some(message) = found.ok().flatten() else { return };
        match message.view(true) {
            Ok(viewed) => {
                assert!(overwritten || is_whole(&viewed), "a different message was viewed");
                self.views.push(viewed);
            }
            // The sender had no pool memory or export slot left, or the state word of the block was overwritten.
            Err(message) => {
                // SAFETY: the buffer is empty, so nothing is written.
                let nothing = unsafe { Target::new(Buf::empty(), None) }.expect("nothing");
                self.unviewed.push(message.recv(Receive::new(nothing)));
            }
        }
    }
}

/// The first byte of a message in a block is its seed, which gives its length.
fn len_of(seed: u8) -> usize {
    70_000 + usize::from(seed)
}

fn is_whole(viewed: &ViewedMessage) -> bool {
    viewed.bytes().first().is_some_and(|seed| viewed.bytes() == body(*seed, len_of(*seed)))
}

struct Scene {
    ranks: [Rank; 2],
    view: SegmentView,
    /// The offsets of the control blocks and ring locations, and those of the rings and the export words of each rank.
    control_words: Range<usize>,
    rings: Vec<[Range<usize>; 2]>,
}

fn scene() -> Scene {
    static CONFIG: LazyLock<Config> = LazyLock::new(|| {
        let mut config = Config::default();
        config.set(&config::EAGER_CREDIT, config::EAGER_CREDIT.range.0).expect("within its range");
        config.set(&config::SHM_FRAGMENTS, 2).expect("within its range");
        config.set(&config::SHM_POOL_MIB, 2).expect("within its range");
        config
    });
    let memory = Segment::create(RANKS, &CONFIG).expect("memory");
    // SAFETY: only duplicates are attached; words are overwritten through a view, as a hostile rank might.
    let fd = || unsafe { memory.descriptor() }.try_clone_to_owned().expect("a descriptor");
    let board = Arc::<LocalCardExchange>::default();
    let here = Hosts::single_host(RANKS).ranks_of(HostId(0));
    let engines = [0, 1].map(|rank| {
        // SAFETY: the descriptor is a duplicate of the segment's. Overwritten words are among those that the ranks
        // check.
        let segment = unsafe { Segment::attach(fd(), RANKS) }.expect("a segment");
        let bell = Arc::new(Doorbell::new().expect("a descriptor"));
        let registry = Registry::empty().with(ShmDriver::new(segment, here.clone()));
        let site = Site::new(rank, RANKS, bell);
        let roster = Arc::<Roster>::default();
        let engine = Engine::open(site, &registry, &CONFIG, board.of(rank), Arc::clone(&roster));
        (engine.expect("a segment and a doorbell"), roster)
    });
    let ranks = engines.map(|(engine, roster)| {
        let member = Member::join(engine).expect("a channel");
        Rank {
            member,
            roster,
            sends: Vec::new(),
            receives: Vec::new(),
            exported: Vec::new(),
            unviewed: Vec::new(),
            views: Vec::new(),
        }
    });
    let (control_words, rings) = memory.words();
    Scene { ranks, view: SharedStorage::attach(fd()).expect("the same memory"), control_words, rings }
}

fn body(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(7) ^ seed).collect()
}

impl Scene {
    fn pass(&self, passes: usize) {
        for _ in 0..passes {
            self.ranks.iter().for_each(Rank::pass);
        }
    }

    /// Overwrites one word of the control blocks, of a ring, or of the export table of a rank.
    fn overwrite(&self, input: &mut Input<'_>) {
        let [ring, exported] = self.rings[input.below(2)].clone();
        let at = match input.below(10) {
            0 => self.control_words.start + input.below(self.control_words.len() / 8) * 8,
            1 => ring.start + input.below(CONTROL_LINES) * 64,
            // A word of the line with the flag `receiver_closed`.
            2 => ring.start + (CONTROL_LINES - 1) * 64 + input.below(8) * 8,
            3..6 => ring.start + (CONTROL_LINES + input.below(CELLS)) * 64,
            6 => ring.start + (CONTROL_LINES + input.below(CELLS)) * 64 + input.below(8) * 8,
            7 => ring.start + input.below(ring.len() / 8) * 8,
            _ => exported.start + input.below(EXPORT_WORDS) * 8,
        };
        let word = self.view.ptr_at(at, 8).expect("inside").cast::<AtomicU64>();
        // SAFETY: `ptr_at` has checked the range, and the word is aligned; the ranks use it as an atomic, or copy it.
        let word = unsafe { word.as_ref() };
        let old = word.load(Ordering::Relaxed);
        let new = match input.below(5) {
            0 => input.edge(),
            1 => old ^ 1 << input.below(64),
            2 => old.wrapping_add(input.below(4) as u64).wrapping_sub(2),
            3 => old & 0xffff_ffff | u64::from(input.u32()) << 32,
            _ => input.u64(),
        };
        word.store(new, Ordering::Relaxed);
    }
}

impl Scene {
    fn burst(&self, seed: u64) {
        let mut state = seed | 1;
        // Each call of `overwrite` reads fewer than 32 bytes.
        let bytes: Vec<u8> = (0..BURST * 32)
            .map(|_| {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                (state >> 56) as u8
            })
            .collect();
        let mut input = Input::new(&bytes);
        for _ in 0..input.below(BURST) {
            self.overwrite(&mut input);
        }
    }
}

/// Two ranks exchange messages through one segment, and some of its words are overwritten. Nothing crashes, and every
/// pass ends. If no word is overwritten, all messages arrive. Otherwise, a message arrives or fails, or one rank
/// detects the damage and reports the other rank: no message waits for ever. When a rank learns of the other's death,
/// it completes its pending operations. No rank reports its own death.
pub fn segment(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut scene = scene();
    let mut overwritten = false;
    for _ in 0..ROUNDS {
        if input.is_empty() {
            break;
        }
        let from = input.below(2);
        match input.below(9) {
            0 | 1 => {
                let (seed, len) = (input.byte(), input.pick(&[0, 8, 48, 49, 1000, 20_000, 32 << 10, 70_000]));
                let [sender, receiver] = if from == 0 { [0, 1] } else { [1, 0] };
                let tag = i32::from(input.byte() % 4);
                let rank = &mut scene.ranks[sender];
                match rank.member.try_isend(receiver as u32, tag, body(seed, len)) {
                    Ok(send) => rank.sends.push(send),
                    Err(fault) => {
                        assert!(overwritten, "{fault}");
                        continue;
                    }
                }
                let rank = &mut scene.ranks[receiver];
                rank.receives.push((seed, len, rank.member.irecv(sender as i32, tag, len)));
            }
            2 | 3 => scene.ranks[from].pass(),
            4 => scene.pass(PASSES),
            6 => {
                let sent = scene.ranks[from].send_exported(1 - from as u32, input.byte());
                assert!(overwritten || sent.is_ok(), "{sent:?}");
            }
            7 => scene.ranks[from].view_next(1 - from as u32, overwritten),
            8 => {
                let views = &mut scene.ranks[from].views;
                if !views.is_empty() {
                    drop(views.swap_remove(input.below(views.len())));
                }
            }
            _ => {
                overwritten = true;
                match input.below(5) {
                    0 => scene.burst(input.u64()),
                    _ => scene.overwrite(&mut input),
                }
            }
        }
    }
    scene.pass(10 * PASSES);
    if overwritten {
        scene.ranks.iter().for_each(|rank| rank.member.engine.verify());
        scene.pass(10 * PASSES);
        // A rank whose send has failed has detected the damage; its exit would notify the other.
        let knows =
            |rank: &Rank| !rank.roster.since(0).is_empty() || rank.sends.iter().any(Sending::has_failed);
        let found = scene.ranks.iter().any(knows);
        for rank in &scene.ranks {
            assert!(
                found || rank.sends.iter().all(Sending::has_ended),
                "a send hangs, and no rank has detected the damage"
            );
            let all = rank.receives.iter().all(|(_, _, receive)| receive.has_ended());
            assert!(found || all, "a receive hangs, and no rank has detected the damage");
        }
    } else {
        for me in [0, 1] {
            for _ in 0..ROUNDS {
                scene.ranks[me].view_next(1 - me as u32, overwritten);
            }
            let views = std::mem::take(&mut scene.ranks[me].views);
            assert!(views.iter().all(is_whole), "a viewed message has changed");
        }
        scene.pass(10 * PASSES);
    }
    for (me, rank) in scene.ranks.iter().enumerate() {
        for ExitEvent { rank: other, exit } in rank.roster.since(0) {
            assert!(
                overwritten && other as usize != me,
                "rank {me} reports the exit of rank {other}: {exit:?}"
            );
            assert!(matches!(exit, Exit::Died(why) if !why.is_empty()));
        }
        if !overwritten {
            assert!(rank.sends.iter().all(Sending::has_ended), "a send hangs");
            assert!(rank.exported.iter().all(|send| send.outcome().is_some()), "a message in a block hangs");
            assert!(rank.receives.iter().all(|(_, _, receive)| receive.has_ended()), "a receive hangs");
        }
        // The death of the other rank completes every pending operation.
        rank.roster.report(1 - me as u32, Exit::Died("its part is over".into()));
    }
    scene.pass(PASSES);
    for Rank { member, sends, receives, exported, unviewed, .. } in scene.ranks {
        assert!(
            exported.iter().chain(&unviewed).all(|it| it.outcome().is_some()),
            "a message in a block hangs"
        );
        assert!(overwritten || exported.iter().all(|send| matches!(send.outcome(), Some(Ok(_)))));
        for send in sends {
            assert!(send.has_ended(), "a send hangs");
            assert!(send.wait(&member).is_ok() || overwritten);
        }
        for (seed, len, receive) in receives {
            assert!(receive.has_ended(), "a receive hangs");
            let (outcome, got) = receive.wait(&member);
            assert!(overwritten || (outcome.is_ok() && got == body(seed, len)));
        }
    }
}
