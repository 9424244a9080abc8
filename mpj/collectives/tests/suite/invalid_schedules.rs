//! Invalid schedules, which the simulator detects.

use mpj_collectives::{BufIndex, OperandOrder, Span, Step};

use crate::algorithms::{combined, empty, own};
use crate::simulator::run;

#[test]
fn invalid_schedules_are_detected() {
    let span = |at| Span::new(BufIndex::RECV, at, 1);
    let bufs = |rank| [own(rank, 2), own(rank, 2), empty(2), vec![]];
    let assert_detected = |steps: [Vec<Step>; 2], error: &str| {
        let result = run(2, |rank| steps[rank as usize].clone(), bufs).map(|report| report.rounds);
        assert!(
            result.as_ref().is_err_and(|result| result.contains(error)),
            "expected an error with {error:?}, found {result:?}"
        );
    };
    let (send, receive) = (|to| Step::Send { to, from: span(0) }, |from| Step::Recv { from, into: span(1) });
    assert_detected(
        [vec![send(1), Step::Fence, receive(1)], vec![send(0), Step::Fence, receive(0)]],
        "is unmatched",
    );
    assert_detected([vec![receive(1)], vec![]], "is unmatched");
    assert_detected([vec![receive(1), receive(1)], vec![send(0), send(0)]], "into items in use");
    assert_detected(
        [vec![send(1), Step::Recv { from: 1, into: span(0) }], vec![receive(0), send(0)]],
        "into items in use",
    );
    assert_detected(
        [vec![Step::Send { to: 1, from: Span::new(BufIndex::RECV, 0, 2) }], vec![receive(0)]],
        "which expects 1",
    );
    assert_detected(
        [vec![Step::Copy { from: Span::new(BufIndex::TEMP, 0, 1), into: span(0) }], vec![]],
        "unwritten items",
    );
    assert_detected([vec![Step::Copy { from: span(1), into: span(2) }], vec![]], "exceeds the 2 items");
    let reduce = |order| Step::ReduceLocal { from: Span::new(BufIndex::TEMP, 1, 1), into: span(1), order };
    let exchange = |order| {
        vec![Step::Recv { from: 1, into: Span::new(BufIndex::TEMP, 1, 1) }, Step::Fence, reduce(order)]
    };
    let send_one = vec![Step::Send { to: 0, from: span(1) }];
    let right =
        run(2, |rank| if rank == 0 { exchange(OperandOrder::IncomingLast) } else { send_one.clone() }, bufs);
    assert_eq!(right.expect("in order").bufs[0][BufIndex::RECV.index()][1], combined(1, 0, 2));
    let early = vec![
        Step::Recv { from: 1, into: Span::new(BufIndex::TEMP, 1, 1) },
        reduce(OperandOrder::IncomingLast),
    ];
    assert_detected([early, send_one], "unwritten items");
}
