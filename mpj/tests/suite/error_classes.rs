//! The error classes: their numbers in the MPI 5.0 ABI, and an input that raises each class that the library raises.

use crate::common::{job, ranks};
use mpj::topology::GraphLayout;
use mpj::{Error, ErrorClass, Info, Intracomm, Op, Receivable, Result, World, dims};

/// The names and numbers of the MPI 5.0 ABI.
const ABI: [(&str, i32); 62] = [
    ("MPI_ERR_BUFFER", 1),
    ("MPI_ERR_COUNT", 2),
    ("MPI_ERR_TYPE", 3),
    ("MPI_ERR_TAG", 4),
    ("MPI_ERR_COMM", 5),
    ("MPI_ERR_RANK", 6),
    ("MPI_ERR_REQUEST", 7),
    ("MPI_ERR_ROOT", 8),
    ("MPI_ERR_GROUP", 9),
    ("MPI_ERR_OP", 10),
    ("MPI_ERR_TOPOLOGY", 11),
    ("MPI_ERR_DIMS", 12),
    ("MPI_ERR_ARG", 13),
    ("MPI_ERR_UNKNOWN", 14),
    ("MPI_ERR_TRUNCATE", 15),
    ("MPI_ERR_OTHER", 16),
    ("MPI_ERR_INTERN", 17),
    ("MPI_ERR_PENDING", 18),
    ("MPI_ERR_IN_STATUS", 19),
    ("MPI_ERR_ACCESS", 20),
    ("MPI_ERR_AMODE", 21),
    ("MPI_ERR_ASSERT", 22),
    ("MPI_ERR_BAD_FILE", 23),
    ("MPI_ERR_BASE", 24),
    ("MPI_ERR_CONVERSION", 25),
    ("MPI_ERR_DISP", 26),
    ("MPI_ERR_DUP_DATAREP", 27),
    ("MPI_ERR_FILE_EXISTS", 28),
    ("MPI_ERR_FILE_IN_USE", 29),
    ("MPI_ERR_FILE", 30),
    ("MPI_ERR_INFO_KEY", 31),
    ("MPI_ERR_INFO_NOKEY", 32),
    ("MPI_ERR_INFO_VALUE", 33),
    ("MPI_ERR_INFO", 34),
    ("MPI_ERR_IO", 35),
    ("MPI_ERR_KEYVAL", 36),
    ("MPI_ERR_LOCKTYPE", 37),
    ("MPI_ERR_NAME", 38),
    ("MPI_ERR_NO_MEM", 39),
    ("MPI_ERR_NOT_SAME", 40),
    ("MPI_ERR_NO_SPACE", 41),
    ("MPI_ERR_NO_SUCH_FILE", 42),
    ("MPI_ERR_PORT", 43),
    ("MPI_ERR_QUOTA", 44),
    ("MPI_ERR_READ_ONLY", 45),
    ("MPI_ERR_RMA_ATTACH", 46),
    ("MPI_ERR_RMA_CONFLICT", 47),
    ("MPI_ERR_RMA_RANGE", 48),
    ("MPI_ERR_RMA_SHARED", 49),
    ("MPI_ERR_RMA_SYNC", 50),
    ("MPI_ERR_SERVICE", 51),
    ("MPI_ERR_SIZE", 52),
    ("MPI_ERR_SPAWN", 53),
    ("MPI_ERR_UNSUPPORTED_DATAREP", 54),
    ("MPI_ERR_UNSUPPORTED_OPERATION", 55),
    ("MPI_ERR_WIN", 56),
    ("MPI_ERR_RMA_FLAVOR", 57),
    ("MPI_ERR_PROC_ABORTED", 58),
    ("MPI_ERR_VALUE_TOO_LARGE", 59),
    ("MPI_ERR_SESSION", 60),
    ("MPI_ERR_ERRHANDLER", 61),
    ("MPI_ERR_ABI", 62),
];

#[test]
fn numbers_are_those_of_the_abi() {
    let classes: Vec<(&str, i32)> =
        ErrorClass::ALL.iter().map(|class| (class.mpi_name(), class.number())).collect();
    assert_eq!(classes, ABI);
    for class in ErrorClass::ALL {
        assert_eq!(ErrorClass::from_number(class.number()), Some(*class));
    }
    for number in [i32::MIN, -1, 0, 63, 64, i32::MAX] {
        assert_eq!(ErrorClass::from_number(number), None, "{number}");
    }
    assert_eq!((ErrorClass::Truncate.number(), ErrorClass::ProcAborted.number()), (15, 58));
}

/// A call that fails on every rank, or after which a barrier fails.
type Input = fn(&Intracomm, &World) -> Result<()>;

/// The classes that the library raises, except for [`ErrorClass::Intern`], which only a defect raises, and
/// [`ErrorClass::ProcAborted`], for which a rank must leave.
const RAISED: [(ErrorClass, Input); 18] = [
    (ErrorClass::Buffer, |comm, _| comm.bsend(&[0u8], 0, 0)),
    (ErrorClass::Count, |comm, _| comm.alltoall(&[0u8; 3], &mut [0u8; 3])),
    (ErrorClass::Type, |_, world| send_to_self(world, &[1u8], &mut [0i8])),
    (ErrorClass::Tag, |comm, _| comm.send(&[0u8], 0, -1)),
    (ErrorClass::Comm, |comm, _| comm.free().and_then(|()| comm.barrier())),
    (ErrorClass::Rank, |comm, _| comm.send(&[0u8], comm.size(), 0)),
    (ErrorClass::Request, |comm, _| {
        let receive = comm.irecv([0u8], 0, 0)?;
        assert!(receive.cancel());
        receive.wait().map(drop).map_err(Error::from)
    }),
    (ErrorClass::Root, |comm, _| comm.bcast(&mut [0u8], comm.size())),
    (ErrorClass::Group, |comm, _| comm.create_group(&mpj::Group::empty(), 0).map(drop)),
    (ErrorClass::Op, |comm, _| comm.allreduce(&[0.5], &mut [0.0], Op::Band)),
    (ErrorClass::Topology, |_, _| GraphLayout::new(&[1], &[1]).map(drop)),
    (ErrorClass::Dims, |_, _| dims(5, &[Some(2), None]).map(drop)),
    (ErrorClass::Arg, |comm, _| comm.scatterv(&[0u8; 2], &[1], &[0], &mut [0u8], comm.rank())),
    (ErrorClass::Truncate, |_, world| send_to_self(world, &[1u8; 2], &mut [0u8])),
    (ErrorClass::Other, |comm, _| match comm.rank() {
        0 => comm.barrier(),
        _ => comm.bcast(&mut [0u8; 100_000], 1),
    }),
    (ErrorClass::InfoKey, |_, _| Info::new().set("", "value").map(drop)),
    (ErrorClass::InfoValue, |_, _| Info::new().set("key", &"long".repeat(1000)).map(drop)),
    (ErrorClass::NoMem, |_, world| world.alloc_slice(0u8, usize::MAX >> 8).map(drop)),
];

fn send_to_self<S: Receivable, R: Receivable>(world: &World, send: &[S], recv: &mut [R]) -> Result<()> {
    world.send(send, world.rank(), 0)?;
    world.recv(recv, world.rank(), 0).map(drop)
}

#[test]
fn each_class_is_raised_by_an_input() {
    ranks(2, |world| {
        for (class, call) in RAISED {
            // A failed collective is the last one of its communicator.
            let comm = world.dup()?;
            let error = match call(&comm, &world) {
                Ok(()) => comm.barrier().expect_err(class.mpi_name()),
                Err(error) => error,
            };
            assert_eq!(error.class(), class, "{error}");
        }
        Ok(())
    });
}

#[test]
fn receive_from_a_rank_that_has_left_fails_with_proc_aborted() {
    let classes = job(2, |world| {
        let receives = world.rank() == 0;
        Ok::<_, Error>(receives.then(|| world.recv(&mut [0u8], 1, 0).expect_err("rank 1 leaves").class()))
    });
    assert_eq!(classes.expect("no rank fails"), [Some(ErrorClass::ProcAborted), None]);
}
