//! Collectives of serde values, whose lengths differ between ranks.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::common::{job, ranks, text_of};
use mpj::{ErrorClass, Intracomm, World};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
struct Report {
    name: String,
    words: BTreeMap<String, u64>,
    series: Vec<Option<f64>>,
}

/// A value for one rank from another. Some are long enough for a rendezvous, and for the ring algorithm.
fn report(from: usize, to: usize) -> Report {
    let len = if (from + to) % 4 == 3 { 20_000 } else { from * 3 + to };
    Report {
        name: format!("{from} → {to}"),
        words: (0..from as u64 % 3).map(|at| (format!("word {at}"), at << 40)).collect(),
        series: (0..len).map(|at| (at % 3 > 0).then_some(at as f64 / 7.0 + to as f64)).collect(),
    }
}

#[test]
fn values_of_different_lengths_arrive_in_rank_order() {
    for size in 1..=9 {
        ranks(size, |world| {
            let me = world.rank();
            for root in [0, size / 2, size - 1] {
                let all = world.gather_object(report(me, root), root)?;
                let expected = || (0..size).map(|from| report(from, root)).collect::<Vec<_>>();
                assert_eq!(all, (me == root).then(expected));
                // Only the root's values are used.
                let parts = if me == root {
                    (0..size).map(|to| report(root, to)).collect()
                } else {
                    vec![report(9, 9)]
                };
                assert_eq!(world.scatter_object(parts, root)?, report(root, me));
            }
            for to in 0..2 {
                let all = world.allgather_object(report(me, to))?;
                assert!(all.into_iter().eq((0..size).map(|from| report(from, to))));
            }
            let exchanged = world.alltoall_object((0..size).map(|to| report(me, to)).collect())?;
            assert!(exchanged.into_iter().eq((0..size).map(|from| report(from, me))));
            world.barrier()
        });
    }
}

#[test]
fn reductions_combine_from_the_left_in_rank_order() {
    for size in 1..=9 {
        ranks(size, |world| {
            let me = world.rank();
            // Neither commutative nor associative.
            let nested = |last: usize| (1..=last).fold("0".to_owned(), |all, rank| format!("({all}-{rank})"));
            for root in [0, size - 1] {
                let mut calls = 0;
                let total = world.reduce_object(
                    me.to_string(),
                    |left, right| {
                        calls += 1;
                        format!("({left}-{right})")
                    },
                    root,
                )?;
                assert_eq!(total, (me == root).then(|| nested(size - 1)));
                assert_eq!(calls, if me == root { size - 1 } else { 0 });
            }
            let total = world.allreduce_object(me.to_string(), |left, right| format!("({left}-{right})"))?;
            assert_eq!(total, nested(size - 1));
            let longest = |a: Report, b: Report| if a.series.len() >= b.series.len() { a } else { b };
            let expected = (0..size).map(|from| report(from, 1)).reduce(longest);
            assert_eq!(Some(world.allreduce_object(report(me, 1), longest)?), expected);
            Ok(())
        });
    }
}

/// Returns the errors of all ranks, from the call or from the barrier after it, as texts.
#[track_caller]
fn errors_of_all(size: usize, call: impl Fn(&Intracomm) -> mpj::Result<()> + Send + Sync) -> Vec<String> {
    let outcome = job(size, |world: World| {
        let comm = world.dup()?;
        let failed = call(&comm).and_then(|()| comm.barrier());
        world.barrier()?;
        Ok::<_, mpj::Error>(text_of(&failed.expect_err("an error on every rank")))
    });
    outcome.expect("every rank returns `Ok`")
}

/// A value that only some ranks can serialize.
struct Odd(bool);

impl Serialize for Odd {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0 { Err(serde::ser::Error::custom("not today")) } else { serializer.serialize_u8(7) }
    }
}

impl<'de> Deserialize<'de> for Odd {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        u8::deserialize(deserializer).map(|_| Odd(false))
    }
}

#[test]
fn unserializable_value_on_one_rank_fails_on_every_rank() {
    type Call = fn(&Intracomm, bool) -> mpj::Result<()>;
    let calls: [(Call, &str); 6] = [
        (|comm, is_odd| comm.gather_object(Odd(is_odd), 0).map(drop), "gather_object"),
        (|comm, is_odd| comm.allgather_object(Odd(is_odd)).map(drop), "allgather_object"),
        (|comm, is_odd| comm.reduce_object(Odd(is_odd), |a, _| a, 0).map(drop), "reduce_object"),
        (|comm, is_odd| comm.allreduce_object(Odd(is_odd), |a, _| a).map(drop), "allreduce_object"),
        (
            |comm, is_odd| {
                comm.scatter_object((0..3).map(|to| Odd(is_odd && to == 0)).collect(), 1).map(drop)
            },
            "scatter_object",
        ),
        (
            |comm, is_odd| comm.alltoall_object((0..3).map(|to| Odd(is_odd && to == 0)).collect()).map(drop),
            "alltoall_object",
        ),
    ];
    for (call, name) in calls {
        let errors = errors_of_all(3, |comm| call(comm, comm.rank() == 1));
        let cause = format!("{name}: the Serialize or Deserialize implementation returned an error");
        assert_eq!(errors[1], cause);
        for other in [0, 2] {
            assert!(errors[other].ends_with(&format!("rank 1 failed in {cause}")), "{errors:?}");
        }
    }
    // The result cannot be serialized: the closure runs on rank 0.
    let errors = errors_of_all(3, |comm| comm.allreduce_object(Odd(false), |_, _| Odd(true)).map(drop));
    assert!(errors.iter().all(|error| error.contains("allreduce_object: the Serialize or")), "{errors:?}");
}

#[test]
fn panicking_closure_fails_on_every_rank() {
    for root in [0, 2] {
        let outcome = job(3, |world: World| {
            let comm = world.dup()?;
            let call = || match root {
                0 => comm.allreduce_object(1u8, |_, _| panic!("deliberate")).map(drop),
                _ => comm.reduce_object(1u8, |_, _| panic!("deliberate"), root).map(drop),
            };
            match catch_unwind(AssertUnwindSafe(call)) {
                Err(_) => assert_eq!(world.rank(), root),
                Ok(outcome) => {
                    let error = outcome.and_then(|()| comm.barrier()).expect_err("the root has failed");
                    let expected = format!("rank {root} failed in");
                    assert!(error.to_string().contains(&expected), "{error}");
                    assert!(error.to_string().contains("a user function panicked"), "{error}");
                }
            }
            world.barrier()
        });
        outcome.expect("every rank returns `Ok`");
    }
}

#[test]
fn invalid_arguments_fail_on_every_rank() {
    let errors = errors_of_all(3, |comm| {
        let count = if comm.rank() == 2 { 4 } else { 3 };
        comm.alltoall_object(vec![1u8; count]).map(drop)
    });
    assert!(errors.iter().all(|error| error.contains("alltoall_object: 4 values for 3 ranks")), "{errors:?}");
    let errors = errors_of_all(3, |comm| comm.scatter_object(vec!["x".to_owned(); 2], 1).map(drop));
    assert!(errors.iter().all(|error| error.contains("scatter_object: 2 values for 3 ranks")), "{errors:?}");
    let errors = errors_of_all(2, |comm| comm.gather_object((), 2).map(drop));
    assert!(errors.iter().all(|error| error.contains("gather_object: root 2 is out of range")), "{errors:?}");
    let errors = errors_of_all(2, |comm| comm.reduce_object((), |(), ()| (), 9).map(drop));
    assert!(errors.iter().all(|error| error.contains("reduce_object: root 9 is out of range")), "{errors:?}");
}

#[test]
fn different_calls_fail_on_every_rank() {
    type Call = fn(&Intracomm) -> mpj::Result<()>;
    let calls: [(Call, &str); 5] = [
        (|comm| comm.gather_object(1u8, 0).map(drop), "gather_object"),
        (|comm| comm.allgather_object(1u8).map(drop), "allgather_object"),
        (|comm| comm.alltoall_object(vec![1u8; 3]).map(drop), "alltoall_object"),
        (|comm| comm.allreduce_object(1u8, |a, _| a).map(drop), "allreduce_object"),
        (|comm| comm.scatter_object(vec![1u8; 3], 0).map(drop), "scatter_object"),
    ];
    for (at, (one, name)) in calls.iter().enumerate() {
        for (other, other_name) in calls.iter().skip(at + 1) {
            for odd in [0, 2] {
                let errors =
                    errors_of_all(3, |comm| if comm.rank() == odd { one(comm) } else { other(comm) });
                let names_both = |error: &String| error.contains(name) && error.contains(other_name);
                assert!(errors.iter().any(names_both), "{name}, {other_name}: {errors:?}");
            }
        }
    }
    // Another root.
    errors_of_all(3, |comm| comm.gather_object(1u8, comm.rank() % 2).map(drop));
    errors_of_all(3, |comm| comm.reduce_object(1u8, |a, _| a, comm.rank() % 2).map(drop));
}

/// As in a broadcast, a value of another type fails the call of its receiver. In a reduction, it fails all calls.
#[test]
fn value_of_another_type_is_an_error() {
    ranks(3, |world| {
        let gathered = match world.rank() {
            0 => world.gather_object("text".to_owned(), 0).map(drop),
            _ => world.gather_object(BTreeMap::from([(1u8, vec![2.5f64])]), 0).map(drop),
        };
        if world.rank() == 0 {
            let error = gathered.expect_err("a map");
            assert_eq!(error.class(), ErrorClass::Buffer);
            assert!(error.to_string().contains("String from the message of rank 1"), "{error}");
        }
        world.barrier()
    });
    let errors = errors_of_all(3, |comm| match comm.rank() {
        0 => comm.allreduce_object("text".to_owned(), |a, _| a).map(drop),
        _ => comm.allreduce_object(BTreeMap::from([(1u8, vec![2.5f64])]), |a, _| a).map(drop),
    });
    assert!(errors.iter().all(|error| error.contains("String from the message of rank 1")), "{errors:?}");
}
