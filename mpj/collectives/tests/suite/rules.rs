//! Which algorithm a call uses.

use mpj_collectives::{ALGORITHMS, Arguments, Operation, Rules, algorithms_of};

fn selected(rules: &Rules, operation: Operation, call: &Arguments<'_>, bytes: usize) -> &'static str {
    rules.select(operation, call, bytes).map_or("none", |algorithm| algorithm.name)
}

#[test]
fn numbers_and_names_of_algorithms_are_unique() {
    for (at, one) in ALGORITHMS.iter().enumerate() {
        assert!(one.id > 0, "0 stands for no algorithm");
        for other in &ALGORITHMS[at + 1..] {
            let same = one.operation == other.operation && (one.id == other.id || one.name == other.name);
            assert!(!same, "{one} and {other} of {}", one.operation);
        }
    }
    for operation in Operation::ALL {
        assert_eq!(Operation::from_code(*operation as u8), Some(*operation));
        assert!(Operation::ALL.iter().filter(|other| other.name() == operation.name()).count() == 1);
    }
    assert_eq!((Operation::from_code(0), Operation::from_code(255)), (None, None));
}

#[test]
fn every_call_has_an_algorithm_by_default() {
    let rules = Rules::default();
    for operation in Operation::ALL.iter().filter(|operation| algorithms_of(**operation).next().is_some()) {
        assert!(!Rules::default_of(*operation).is_empty());
        for size in [1, 2, 3, 8, 9, 1 << 20] {
            for bytes in [0, 1, 4 << 10, (32 << 10) + 1, usize::MAX] {
                for commutative in [false, true] {
                    let call = Arguments { commutative, count: bytes / 8, ..Arguments::new(0, size) };
                    rules.select(*operation, &call, bytes).expect("an algorithm");
                }
            }
        }
    }
}

#[test]
fn default_rules_select_by_ranks_and_bytes() {
    let rules = Rules::default();
    for (operation, size, bytes, name) in [
        (Operation::Barrier, 2, 0, "dissemination"),
        (Operation::Barrier, 3, 0, "linear"),
        (Operation::Barrier, 9, 0, "dissemination"),
        (Operation::Bcast, 8, 32 << 10, "linear"),
        (Operation::Bcast, 8, (32 << 10) + 1, "binomial"),
        (Operation::Reduce, 9, 8, "binomial"),
        (Operation::Scan, 8, 4 << 10, "linear"),
        (Operation::Scan, 8, (4 << 10) + 1, "recursive_doubling"),
        (Operation::Scan, 8, usize::MAX, "recursive_doubling"),
        (Operation::Exscan, 8, 4 << 10, "linear"),
        (Operation::Exscan, 9, 8, "recursive_doubling"),
        (Operation::Allgather, 2, 64 << 10, "linear"),
        (Operation::Allgather, 2, (64 << 10) + 1, "ring"),
        (Operation::Alltoall, 99, 64 << 10, "linear"),
        (Operation::Alltoall, 2, (64 << 10) + 1, "pairwise"),
        (Operation::Allreduce, 4, (32 << 10) - 1, "linear"),
        (Operation::Allreduce, 9, (32 << 10) - 1, "recursive_doubling"),
        (Operation::Allreduce, 2, 8, "recursive_doubling"),
        (Operation::Allreduce, 4, 32 << 10, "ring"),
    ] {
        let call = Arguments { count: bytes / 8, ..Arguments::new(0, size) };
        assert_eq!(
            selected(&rules, operation, &call, bytes),
            name,
            "{operation}, {size} ranks, {bytes} bytes"
        );
    }
}

#[test]
fn rule_whose_requirements_are_not_met_is_skipped() {
    let rules = Rules::default();
    let call = Arguments { count: 64 << 10, ..Arguments::new(0, 4) };
    let of = |call: &Arguments<'_>| selected(&rules, Operation::Allreduce, call, 64 << 10);
    assert_eq!(of(&call), "ring");
    assert_eq!(of(&Arguments { commutative: false, ..call }), "recursive_doubling");
    assert_eq!(of(&Arguments { count: 3, ..call }), "recursive_doubling");
}

#[test]
fn rules_can_be_replaced() {
    let mut rules = Rules::default();
    rules.set(Operation::Bcast, "binomial:ranks=-").unwrap_err();
    rules.set(Operation::Bcast, "binomial:ranks=4:bytes=1K-2K, linear:ranks=5-").unwrap();
    let name = |size, bytes| selected(&rules, Operation::Bcast, &Arguments::new(0, size), bytes);
    assert_eq!((name(4, 1024), name(4, 2048), name(5, 1024)), ("binomial", "binomial", "linear"));
    assert_eq!((name(4, 1023), name(4, 2049), name(3, 1024)), ("none", "none", "none"));
    rules.set(Operation::Bcast, "linear:hosts=1,binomial:hosts=2-").unwrap();
    let on_hosts = |hosts| Arguments { hosts, ..Arguments::new(0, 4) };
    let names = [1, 2].map(|hosts| selected(&rules, Operation::Bcast, &on_hosts(hosts), 8));
    assert_eq!(names, ["linear", "binomial"]);
    assert_eq!(selected(&rules, Operation::Reduce, &Arguments::new(0, 4), 1024), "linear", "is unchanged");
}

#[test]
fn error_of_a_forced_algorithm_lists_those_that_fit() {
    let mut rules = Rules::default();
    rules.set(Operation::Allreduce, "ring").unwrap();
    let call = Arguments { count: 9, ..Arguments::new(0, 4) };
    assert_eq!(rules.select(Operation::Allreduce, &call, 72).unwrap().name, "ring");
    let misfit =
        rules.select(Operation::Allreduce, &Arguments { commutative: false, ..call }, 72).unwrap_err();
    assert_eq!(
        misfit.to_string(),
        "the rules for allreduce select none of its algorithms here (ring (needs a commutative reduction \
         operation and at least one item per rank)); these fit: linear, recursive_doubling"
    );
}

#[test]
fn invalid_rules_are_refused_with_the_reason() {
    let mut rules = Rules::default();
    for (text, why) in [
        ("", "has the unknown algorithm ''; allreduce has linear, recursive_doubling, ring"),
        ("rings", "has the unknown algorithm 'rings'; allreduce has linear, recursive_doubling, ring"),
        ("ring,", "has the unknown algorithm ''"),
        ("ring:bytes", "has the invalid condition 'bytes'; expected ranks=A-B, hosts=A-B or bytes=A-B"),
        ("ring:bytes=", "has the invalid condition 'bytes='"),
        ("ring:bytes=4-3", "has the invalid condition 'bytes=4-3'"),
        ("ring:bytes=1-2-3", "has the invalid condition 'bytes=1-2-3'"),
        ("ring:bytes=99999999999G-", "has the invalid condition 'bytes=99999999999G-'"),
        ("ring:cores=1", "has the invalid condition 'cores=1'"),
        ("ring:ranks=é", "has the invalid condition 'ranks=é'"),
    ] {
        let error = rules.set(Operation::Allreduce, text).unwrap_err();
        assert!(error.starts_with(why), "{text}: {error}");
    }
    let error = rules.set(Operation::Gather, "linear:bytes=1-").unwrap_err();
    assert_eq!(error, "has the condition 'bytes=1-', which gather does not have");
    let error = rules.set(Operation::Gather, "linear:cores=1").unwrap_err();
    assert_eq!(error, "has the invalid condition 'cores=1'; expected ranks=A-B or hosts=A-B");
    assert!(rules.set(Operation::Dup, "linear").unwrap_err().contains("unknown algorithm"));
}
