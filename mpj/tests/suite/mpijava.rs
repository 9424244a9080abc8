//! Every method in the specification of mpiJava 1.2 has a counterpart: a call, which a test makes, or a type that makes
//! the method unnecessary. The guide has a row for each.

mod messages;

use std::collections::BTreeSet;
use std::sync::LazyLock;
use std::sync::Mutex;

use mpj::topology::Dim;
use mpj::{Comparison, Datatype, Group, Key, Op, Reorder, SplitType, View, World};

use messages::{blocking_messages, persistent, requests, ring};

/// The methods by class, with constructors, static methods, `free`, and the fields of `Status`.
///
/// mpiJava 1.2 has 123. Three of them are the classes `CartParms`, `GraphParms` and `ShiftParms`, whose fields are
/// results of `Get` and `Shift` here. This list also has `clone` of `Cartcomm` and `Graphcomm`, and five methods that
/// have little meaning in Rust: `Is_null` of `Comm` and `Request`, `Test_inter`, `Topo_test`, and `Request.Free`.
#[rustfmt::skip]
const METHODS: &[(&str, &[&str])] = &[
    ("MPI", &["Init", "Finalize", "Initialized", "Get_processor_name", "Wtime", "Wtick", "Buffer_attach", "Buffer_detach"]),
    (
        "Comm",
        &[
            "Size", "Rank", "Group", "Compare", "Free", "clone", "Is_null", "Test_inter", "Create_intercomm", "Attr_get",
            "Errorhandler_set", "Errorhandler_get", "Abort", "Topo_test", "Send", "Bsend", "Ssend", "Rsend", "Recv",
            "Isend", "Ibsend", "Issend", "Irsend", "Irecv", "Probe", "Iprobe", "Sendrecv", "Sendrecv_replace", "Pack",
            "Unpack", "Pack_size", "Send_init", "Bsend_init", "Ssend_init", "Rsend_init", "Recv_init",
        ],
    ),
    (
        "Intracomm",
        &[
            "Split", "Create", "clone", "Barrier", "Bcast", "Gather", "Gatherv", "Scatter", "Scatterv", "Allgather",
            "Allgatherv", "Alltoall", "Alltoallv", "Reduce", "Allreduce", "Reduce_scatter", "Scan", "Create_cart",
            "Create_graph",
        ],
    ),
    ("Intercomm", &["Remote_size", "Remote_group", "Merge", "clone"]),
    ("Cartcomm", &["Rank", "Coords", "Shift", "Sub", "Map", "Get", "Dims_create", "clone"]),
    ("Graphcomm", &["Neighbours", "Map", "Get", "clone"]),
    (
        "Group",
        &[
            "Size", "Rank", "Incl", "Excl", "Range_incl", "Range_excl", "Translate_ranks", "Compare", "Union",
            "Intersection", "Difference", "free",
        ],
    ),
    (
        "Datatype",
        &[
            "Contiguous", "Vector", "Hvector", "Indexed", "Hindexed", "Struct", "Extent", "Size", "Lb", "Ub", "Commit",
            "free",
        ],
    ),
    ("Op", &["Op", "Call", "free"]),
    (
        "Request",
        &[
            "Wait", "Test", "Cancel", "Is_null", "Free", "Waitall", "Waitany", "Waitsome", "Testall", "Testany",
            "Testsome",
        ],
    ),
    ("Prequest", &["Start", "Startall"]),
    ("Status", &["Get_count", "Get_elements", "Test_cancelled", "source", "tag", "index"]),
    ("MPIException", &["Get_error_class", "getMessage"]),
];

const METHOD_COUNT: usize = 123 - 3 + 2 + 5;

/// The methods whose counterparts a rank has called.
static CALLED: LazyLock<Mutex<BTreeSet<(&str, &str)>>> = LazyLock::new(Mutex::default);

/// Notes that the counterparts of these methods were called.
fn called(class: &'static str, methods: &[&'static str]) {
    let (_, known) = METHODS.iter().find(|(name, _)| *name == class).expect("a class of mpiJava");
    for method in methods {
        assert!(known.contains(method), "{class} has no {method}");
        CALLED.lock().expect("no test panics with it").insert((class, method));
    }
}

#[test]
fn every_method_has_a_counterpart_that_works() {
    mpj::threads(4, |world| {
        environment(&world)?;
        blocking_messages(&world)?;
        requests(&world)?;
        persistent(&world)?;
        collectives(&world)?;
        groups(&world)?;
        topologies(&world)?;
        intercommunicators(&world)?;
        datatypes(&world)?;
        errors(&world)
    })
    .expect("all ranks succeed");
    called("MPI", &["Init", "Finalize"]); // `threads` has initialised and finalised every rank
    abort_ends_a_job();
    let called = CALLED.lock().expect("no rank has panicked");
    let all: BTreeSet<_> = METHODS
        .iter()
        .flat_map(|(class, methods)| methods.iter().map(move |method| (*class, *method)))
        .collect();
    assert_eq!(all.len(), METHOD_COUNT);
    let missing: Vec<_> = all.difference(&called).collect();
    assert!(missing.is_empty(), "no counterpart was called of {missing:?}");
}

#[test]
fn guide_has_a_row_for_every_method() {
    let guide = include_str!("../../src/guide.md");
    let table = guide.split("# Coverage of mpiJava 1.2").nth(1).expect("the guide has the table");
    for (class, methods) in METHODS {
        for method in *methods {
            let has_row = table.lines().any(|row| {
                let mut cells = row.split('|').skip(1);
                let (of, names) = (cells.next().unwrap_or(""), cells.next().unwrap_or(""));
                let here = cells.next().unwrap_or("").trim();
                of.trim() == format!("`{class}`")
                    && names.contains(&format!("`{method}`"))
                    && !here.is_empty()
            });
            assert!(has_row, "the guide has no row for {class}.{method}");
        }
    }
}

fn environment(world: &World) -> mpj::Result<()> {
    // A `World` in hand shows that the rank is initialised.
    assert_eq!((world.size(), world.rank() < 4), (4, true));
    assert!(!world.processor_name().is_empty());
    let (start, tick) = (mpj::wtime(), mpj::wtick());
    assert!(tick > 0.0 && tick < 1e-3 && mpj::wtime() >= start);
    called("MPI", &["Initialized", "Get_processor_name", "Wtime", "Wtick"]);
    called("Comm", &["Size", "Rank"]);
    Ok(())
}

fn collectives(world: &World) -> mpj::Result<()> {
    let me = world.rank() as i64;
    let (counts, places) = ([1, 2, 1, 2], [0, 1, 3, 4]);
    let mine = vec![me; counts[world.rank()]];
    let all = [0, 1, 1, 2, 3, 3];
    world.barrier()?;
    let mut word = [if me == 2 { 7 } else { 0 }];
    world.bcast(&mut word, 2)?;
    assert_eq!(word, [7]);
    let mut four = [0i64; 4];
    world.gather(&[me], &mut four, 1)?;
    assert!(me != 1 || four == [0, 1, 2, 3]);
    let mut six = [0i64; 6];
    world.gatherv(&mine, &mut six, &counts, &places, 3)?;
    assert!(me != 3 || six == all);
    let mut one = [0i64];
    world.scatter(&[5i64, 6, 7, 8], &mut one, 0)?;
    assert_eq!(one, [5 + me]);
    let mut part = mine.clone();
    world.scatterv(&all.map(|item| item + 10), &counts, &places, &mut part, 2)?;
    assert_eq!(part, mine.iter().map(|item| item + 10).collect::<Vec<_>>());
    world.allgather(&[me], &mut four)?;
    assert_eq!(four, [0, 1, 2, 3]);
    world.allgatherv(&mine, &mut six, &counts, &places)?;
    assert_eq!(six, all);
    world.alltoall(&[0i64, 1, 2, 3].map(|to| 10 * me + to), &mut four)?;
    assert_eq!(four, [0, 1, 2, 3].map(|from| 10 * from + me));
    let (ones, at) = ([1; 4], [0, 1, 2, 3]);
    world.alltoallv(&[0, 1, 2, 3].map(|to| 100 * me + to), (&ones, &at), &mut four, (&ones, &at))?;
    assert_eq!(four, [0, 1, 2, 3].map(|from| 100 * from + me));
    world.reduce(&[me], &mut one, Op::Max, 1)?;
    assert!(me != 1 || one == [3]);
    world.allreduce(&[me], &mut one, Op::Sum)?;
    assert_eq!(one, [6]);
    world.reduce_scatter(&[1i64, 2, 3, 4], &mut one, &ones, Op::Prod)?;
    assert_eq!(one, [(me + 1).pow(4)]);
    let first = Op::user(false, |left: &i64, _: &i64| *left); // not commutative
    world.scan(&[me + 1], &mut one, first)?;
    assert_eq!(one, [1]);
    called(
        "Intracomm",
        &["Barrier", "Bcast", "Gather", "Gatherv", "Scatter", "Scatterv", "Allgather", "Allgatherv"],
    );
    called("Intracomm", &["Alltoall", "Alltoallv", "Reduce", "Allreduce", "Reduce_scatter", "Scan"]);
    called("Op", &["Op", "Call", "free"]);
    Ok(())
}

fn groups(world: &World) -> mpj::Result<()> {
    static KEY: LazyLock<Key<u32>> = LazyLock::new(Key::shared);
    let group = world.group();
    assert_eq!((group.size(), group.rank()), (4, Some(world.rank())));
    let odd = group.include(&[3, 1])?;
    assert_eq!(group.exclude(&[0, 2])?.compare(&odd), Comparison::Similar);
    assert_eq!(group.include_ranges(&[(3, 1, -2)])?.compare(&odd), Comparison::Identical);
    let even = group.exclude_ranges(&[(1, 3, 2)])?;
    assert_eq!(odd.union(&even).size(), 4);
    assert_eq!(odd.intersection(&even).compare(&Group::empty()), Comparison::Identical);
    assert_eq!(group.difference(&odd).compare(&even), Comparison::Identical);
    assert_eq!(odd.translate(&[0, 1], &group)?, [Some(3), Some(1)]);
    let created = world.create(&odd)?;
    assert_eq!(created.map(|comm| comm.rank()), odd.rank());
    let half = world.split(Some(world.rank() as u32 / 2), 0)?.expect("every rank has a color");
    assert_eq!(half.size(), 2);
    assert!(world.split_type(SplitType::Host, 0)?.is_some_and(|local| local.size() == 4));
    let comm = world.dup()?;
    assert_eq!(world.compare(&comm), Comparison::Congruent);
    comm.set_attribute(&KEY, 5)?;
    assert_eq!(comm.dup()?.attribute(&KEY).as_deref(), Some(&5));
    // mpiJava's error handlers choose between an exception and the end of the job; here every call returns a `Result`.
    let handler: mpj::raw::ErrorHandler = std::sync::Arc::new("returns");
    comm.as_raw().set_error_handler(handler);
    assert!(comm.as_raw().error_handler().is_some_and(|handler| handler.is::<&str>()));
    comm.free()?;
    assert!(comm.barrier().is_err());
    called(
        "Comm",
        &["Group", "Compare", "Free", "clone", "Attr_get", "Errorhandler_set", "Errorhandler_get"],
    );
    called("Intracomm", &["Split", "Create", "clone"]);
    called(
        "Group",
        &["Size", "Rank", "Incl", "Excl", "Range_incl", "Range_excl", "Translate_ranks", "Compare"],
    );
    called("Group", &["Union", "Intersection", "Difference", "free"]);
    Ok(())
}

fn topologies(world: &World) -> mpj::Result<()> {
    let sizes = mpj::dims(4, &[None, None])?;
    assert_eq!(sizes, [2, 2]);
    let dims = [Dim::periodic(2), Dim::open(2)];
    let grid = world.cart(&dims, Reorder::No)?.expect("four cells");
    assert_eq!(grid.dims(), dims);
    let coords = grid.coords_of(grid.rank())?;
    assert_eq!(coords, grid.coords());
    let here: Vec<isize> = coords.iter().map(|at| *at as isize).collect();
    assert_eq!(grid.rank_of(&here)?, Some(grid.rank()));
    let (source, dest) = grid.shift(1, 1)?;
    assert_eq!((source.is_some(), dest.is_some()), (coords[1] == 1, coords[1] == 0));
    assert_eq!(grid.sub(&[true, false])?.size(), 2);
    assert!(world.cart_map(&dims)?.is_some());
    assert!(grid.as_cart().is_some() && world.as_cart().is_none());
    assert_eq!(grid.dup()?.coords(), grid.coords());

    let path = world.graph(&[1, 3, 5, 6], &[1, 0, 2, 1, 3, 2], Reorder::No)?.expect("four nodes");
    assert_eq!(path.neighbors(1)?, [0, 2]);
    assert_eq!((path.layout().index(), path.layout().edges().len()), (&[1, 3, 5, 6][..], 6));
    assert!(world.graph_map(&[1, 3, 5, 6], &[1, 0, 2, 1, 3, 2])?.is_some());
    assert_eq!(path.dup()?.neighbors(0)?, [1]);
    called("Intracomm", &["Create_cart", "Create_graph"]);
    called("Comm", &["Topo_test"]);
    called("Cartcomm", &["Rank", "Coords", "Shift", "Sub", "Map", "Get", "Dims_create", "clone"]);
    called("Graphcomm", &["Neighbours", "Map", "Get", "clone"]);
    Ok(())
}

fn intercommunicators(world: &World) -> mpj::Result<()> {
    let is_upper = world.rank() >= 2;
    let half = world.split(Some(is_upper.into()), 0)?.expect("every rank has a color");
    let inter = half.create_intercomm(0, world, if is_upper { 0 } else { 2 }, 9)?;
    assert_eq!((inter.remote_size(), inter.remote_group().size()), (2, 2));
    let mut got = [0];
    inter.sendrecv(&[world.rank()], inter.rank(), 0, &mut got, inter.rank(), 0)?;
    assert_eq!(got, [(world.rank() + 2) % 4]);
    assert!(inter.as_raw().is_inter() && !half.as_raw().is_inter());
    assert_eq!(inter.dup()?.remote_size(), 2);
    assert_eq!(inter.merge(!is_upper)?.rank(), got[0]);
    called("Comm", &["Test_inter", "Create_intercomm"]);
    called("Intercomm", &["Remote_size", "Remote_group", "Merge", "clone"]);
    Ok(())
}

fn datatypes(world: &World) -> mpj::Result<()> {
    let int = Datatype::of::<i32>();
    let of_four = |datatype: &Datatype| {
        (datatype.size(), datatype.extent(), datatype.lb(), datatype.lb() + datatype.extent())
    };
    assert_eq!(of_four(&int.contiguous(3)?), (12, 12, 0, 12));
    assert_eq!(of_four(&int.vector(2, 1, 2)?), (8, 12, 0, 12));
    assert_eq!(of_four(&int.hvector(2, 1, 8)?), (8, 12, 0, 12));
    assert_eq!(of_four(&int.indexed(&[(1, 0), (1, 3)])?), (8, 16, 0, 16));
    assert_eq!(of_four(&int.hindexed(&[(1, 4), (1, 12)])?), (8, 12, 4, 16));
    let mixed = Datatype::structure(&[(2, 0, int.clone()), (1, 8, int.vector(2, 1, 2)?)])?;
    assert_eq!(of_four(&mixed), (16, 20, 0, 20));
    // A type needs no commit: it is compiled when it is built.
    let items: Vec<i32> = (0..5).map(|i| 10 * world.rank() as i32 + i).collect();
    let ((right, left), mut got) = (ring(world), [0i32; 4]);
    world.sendrecv(&View::new(&items, 0, &mixed, 1)?, right, 0, &mut got, left, 0)?;
    assert_eq!(got, [0, 1, 2, 4].map(|i| 10 * left as i32 + i));
    called(
        "Datatype",
        &["Contiguous", "Vector", "Hvector", "Indexed", "Hindexed", "Struct", "Extent", "Size", "Lb"],
    );
    called("Datatype", &["Ub", "Commit", "free"]);
    Ok(())
}

fn errors(world: &World) -> mpj::Result<()> {
    let error = world.send(&[1u8], 99, 0).expect_err("there is no rank 99");
    assert_eq!(error.class(), mpj::ErrorClass::Rank);
    assert!(error.to_string().contains("rank 99"));
    called("MPIException", &["Get_error_class", "getMessage"]);
    Ok(())
}

fn abort_ends_a_job() {
    let ended = mpj::threads(2, |world| {
        if world.rank() == 1 {
            world.self_comm()?.abort(3, "as intended");
        }
        world.barrier()?;
        world.recv(&mut [0u8], 1 - world.rank(), 0).map(|_| ())
    });
    let error = ended.expect_err("it was aborted").to_string();
    assert!(error.contains("as intended"), "{error}");
    called("Comm", &["Abort"]);
}
