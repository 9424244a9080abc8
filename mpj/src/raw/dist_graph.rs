//! Communicators with a distributed graph topology (MPI 4.1 §8.5.4): each rank knows its own neighbours.
//!
//! Every rank learns all edges while a call checks them and places the nodes, so its memory is proportional to the
//! number of edges of the graph.

use std::borrow::Cow;

use mpj_collectives::{Arguments, BufIndex, Operation, Span};
use mpj_devices::Buf;

use super::comm::Comm;
use super::topology::VirtualTopology;
use crate::collective::blocking::BlockingCall;
use crate::collective::call_id::CallDigest;
use crate::error::{Error, ErrorClass, Result};
use crate::topology::{Adjacency, EdgeWeights};

const CALL: &str = "dist_graph";
const CALL_ADJACENT: &str = "dist_graph_adjacent";

/// Creates a communicator in which this rank receives from `sources` and sends to `destinations`
/// (MPI_Dist_graph_create_adjacent). `weights` are those of the edges from the sources and to the destinations. If
/// `reorder` is true, another process can get this node and its neighbours. Collective.
///
/// # Errors
/// As [`barrier`](super::barrier); [`ErrorClass::Rank`] if a neighbour is out of range, [`ErrorClass::Arg`] if there is
/// not one weight for each edge; [`ErrorClass::Topology`] if the two ends of an edge do not pass it equally often, or if
/// the ranks differ in `reorder` or in the use of weights; a rank has too many communicators.
pub fn dist_graph_create_adjacent(
    comm: &Comm,
    (sources, destinations): (&[usize], &[usize]),
    weights: Option<(&[u32], &[u32])>,
    reorder: bool,
) -> Result<Comm> {
    comm.collective(CALL_ADJACENT, |blocking| {
        check_ranks(comm, CALL_ADJACENT, sources.iter().chain(destinations))?;
        let (source_weights, destination_weights) = match weights {
            Some((sources, destinations)) => (Some(sources), Some(destinations)),
            None => (None, None),
        };
        let source_weights = weights_of(CALL_ADJACENT, sources.len(), source_weights)?;
        let destination_weights = weights_of(CALL_ADJACENT, destinations.len(), destination_weights)?;
        let to = destinations.iter().zip(&*destination_weights).map(|(to, weight)| word(*to, *weight));
        let from = sources.iter().zip(&*source_weights).map(|(from, weight)| word(*from, *weight));
        let words: Vec<u64> = [destinations.len() as u64].into_iter().chain(to).chain(from).collect();
        let form = Form { is_adjacent: true, is_weighted: weights.is_some(), reorder };
        let lists = comm.gather_lists(blocking, CALL_ADJACENT, form, &words)?;
        let nodes = lists.adjacent_nodes(form.is_weighted)?;
        check_both_ends(&nodes)?;
        let edges = || {
            let weighted = |node: usize| edges_to(&nodes[node]).map(move |(to, weight)| (node, to, weight));
            (0..nodes.len()).flat_map(weighted).collect()
        };
        let members = comm.node_members(nodes.len(), edges, reorder);
        comm.create_node(CALL_ADJACENT, lists.id, &members, |node| nodes[node].clone())
    })
}

/// Creates a communicator with these edges, pairs of a source and a destination, and those that the other ranks pass
/// (MPI_Dist_graph_create). Each edge of the graph is passed by one rank, which can be any rank. The neighbours of a
/// node are in the order of the ranks that pass the edges, and then of their lists. Collective.
///
/// # Errors
/// As [`dist_graph_create_adjacent`], except that edges need not be passed twice.
pub fn dist_graph_create(
    comm: &Comm,
    edges: &[(usize, usize)],
    weights: Option<&[u32]>,
    reorder: bool,
) -> Result<Comm> {
    comm.collective(CALL, |blocking| {
        check_ranks(comm, CALL, edges.iter().flat_map(|(from, to)| [from, to]))?;
        let edge_weights = weights_of(CALL, edges.len(), weights)?;
        let pairs = edges.iter().zip(&*edge_weights);
        let words: Vec<u64> =
            pairs.flat_map(|((from, to), weight)| [*from as u64, word(*to, *weight)]).collect();
        let form = Form { is_adjacent: false, is_weighted: weights.is_some(), reorder };
        let lists = comm.gather_lists(blocking, CALL, form, &words)?;
        let all = lists.edges()?;
        let members = comm.node_members(comm.size() as usize, || all.clone(), reorder);
        comm.create_node(CALL, lists.id, &members, |node| {
            let mut adjacency = empty_node(form.is_weighted);
            for (from, to, weight) in &all {
                if *to == node {
                    push(&mut adjacency, End::Source, (*from, *weight));
                }
                if *from == node {
                    push(&mut adjacency, End::Destination, (*to, *weight));
                }
            }
            adjacency
        })
    })
}

/// The arguments in which all ranks must agree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Form {
    is_adjacent: bool,
    is_weighted: bool,
    reorder: bool,
}

impl Form {
    fn word(self) -> u64 {
        u64::from(self.is_adjacent) | u64::from(self.is_weighted) << 1 | u64::from(self.reorder) << 2
    }
}

/// The words that the ranks have passed.
struct Lists {
    words: Vec<u64>,
    /// The number of words of each rank.
    lens: Vec<usize>,
    call: &'static str,
    /// A new context id of rank 0.
    id: u64,
}

fn word(rank: usize, weight: u32) -> u64 {
    u64::from(weight) << 32 | rank as u64
}

fn unpack(word: u64) -> (usize, u32) {
    ((word & u64::from(u32::MAX)) as usize, (word >> 32) as u32)
}

fn check_ranks<'a>(comm: &Comm, call: &'static str, ranks: impl Iterator<Item = &'a usize>) -> Result<()> {
    for rank in ranks {
        comm.check_rank(call, ErrorClass::Rank, crate::address::number(*rank))?;
    }
    Ok(())
}

fn weights_of<'a>(call: &'static str, edges: usize, weights: Option<&'a [u32]>) -> Result<Cow<'a, [u32]>> {
    match weights {
        None => Ok(Cow::Owned(vec![1; edges])),
        Some(weights) if weights.len() == edges => Ok(Cow::Borrowed(weights)),
        Some(weights) => {
            let why = format!("{} weights for {edges} edges", weights.len());
            Err(Error::new(ErrorClass::Arg, call, why))
        }
    }
}

#[derive(Clone, Copy)]
enum End {
    Source,
    Destination,
}

fn empty_node(is_weighted: bool) -> Adjacency {
    Adjacency { weights: is_weighted.then(EdgeWeights::default), ..Adjacency::default() }
}

fn push(node: &mut Adjacency, end: End, (rank, weight): (usize, u32)) {
    let (ranks, weights) = match end {
        End::Source => (&mut node.sources, node.weights.as_mut().map(|weights| &mut weights.sources)),
        End::Destination => {
            (&mut node.destinations, node.weights.as_mut().map(|weights| &mut weights.destinations))
        }
    };
    ranks.push(rank);
    if let Some(weights) = weights {
        weights.push(weight);
    }
}

fn edges_to(node: &Adjacency) -> impl Iterator<Item = (usize, u32)> {
    let weight = |at: usize| node.weights.as_ref().map_or(1, |weights| weights.destinations[at]);
    node.destinations.iter().enumerate().map(move |(at, to)| (*to, weight(at)))
}

/// Checks that each edge occurs as often at its source as at its destination.
fn check_both_ends(nodes: &[Adjacency]) -> Result<()> {
    let outgoing =
        nodes.iter().zip(0..).flat_map(|(node, at)| node.destinations.iter().map(move |to| (at, *to)));
    let incoming =
        nodes.iter().zip(0..).flat_map(|(node, at)| node.sources.iter().map(move |from| (*from, at)));
    let (mut outgoing, mut incoming): (Vec<_>, Vec<_>) = (outgoing.collect(), incoming.collect());
    outgoing.sort_unstable();
    incoming.sort_unstable();
    if outgoing == incoming {
        return Ok(());
    }
    let differs =
        outgoing.iter().zip(&incoming).find(|(one, other)| one != other).map(|(one, other)| one.min(other));
    let longer = if outgoing.len() > incoming.len() { &outgoing } else { &incoming };
    let edge = *differs.unwrap_or_else(|| &longer[outgoing.len().min(incoming.len())]);
    let count = |edges: &[(usize, usize)]| edges.iter().filter(|other| **other == edge).count();
    let (from, to) = edge;
    let (there, here) = (count(&outgoing), count(&incoming));
    let why = format!(
        "expected each edge at both ends, found {there} edges to rank {to} at rank {from}, and {here} from rank {from} at \
         rank {to}"
    );
    Err(Error::new(ErrorClass::Topology, CALL_ADJACENT, why))
}

impl Lists {
    /// Returns the words of each rank.
    fn of_ranks(&self) -> impl Iterator<Item = &[u64]> {
        let mut rest = &self.words[..];
        self.lens.iter().map(move |len| {
            let (first, others) = rest.split_at((*len).min(rest.len()));
            rest = others;
            first
        })
    }

    fn invalid(&self) -> Error {
        Error::new(ErrorClass::Intern, self.call, "another rank has sent an invalid list of edges")
    }

    fn check_neighbor(&self, (rank, weight): (usize, u32)) -> Result<(usize, u32)> {
        if rank < self.lens.len() { Ok((rank, weight)) } else { Err(self.invalid()) }
    }

    fn adjacent_nodes(&self, is_weighted: bool) -> Result<Vec<Adjacency>> {
        let node = |words: &[u64]| {
            let (count, edges) = words.split_first().ok_or_else(|| self.invalid())?;
            let mut node = empty_node(is_weighted);
            for (at, word) in edges.iter().enumerate() {
                let end = if (at as u64) < *count { End::Destination } else { End::Source };
                push(&mut node, end, self.check_neighbor(unpack(*word))?);
            }
            Ok(node)
        };
        self.of_ranks().map(node).collect()
    }

    fn edges(&self) -> Result<Vec<(usize, usize, u32)>> {
        let edge = |words: &[u64]| {
            let (from, _) = self.check_neighbor((words[0] as usize, 0))?;
            let (to, weight) = self.check_neighbor(unpack(words[1]))?;
            Ok((from, to, weight))
        };
        self.of_ranks().flat_map(|words| words.chunks_exact(2)).map(edge).collect()
    }
}

impl Comm {
    /// Gathers the words of each rank at every rank. Fails if the forms differ.
    fn gather_lists(
        &self,
        blocking: &mut BlockingCall<'_>,
        call: &'static str,
        form: Form,
        words: &[u64],
    ) -> Result<Lists> {
        self.check_channel_limit(call)?;
        let digest = CallDigest::new(Operation::DistGraph, 0);
        let heads =
            blocking.allgather_words(digest, &[words.len() as u64, form.word(), self.new_context_id()])?;
        if let Some(rank) = heads.chunks_exact(3).position(|head| head[1] != form.word()) {
            let Form { is_weighted, reorder, .. } = form;
            let why = format!(
                "rank {rank} called the other dist_graph call, or differs in weights or reorder; rank {} passed \
                 weights = {is_weighted} and reorder = {reorder}",
                self.rank()
            );
            return Err(Error::new(ErrorClass::Topology, call, why));
        }
        let lens: Vec<usize> = heads.chunks_exact(3).map(|head| head[0] as usize).collect();
        let words = blocking.allgather_word_lists(digest, call, words, &lens)?;
        Ok(Lists { words, lens, call, id: heads[2] })
    }

    fn create_node(
        &self,
        call: &'static str,
        id: u64,
        members: &[u32],
        node: impl FnOnce(usize) -> Adjacency,
    ) -> Result<Comm> {
        let topology = |rank: u32| Ok(VirtualTopology::of_dist_graph(node(rank as usize)));
        let comm = self.create_with_topology(call, id, members, topology)?;
        comm.ok_or_else(|| Error::new(ErrorClass::Intern, call, "this rank is not a node"))
    }
}

impl BlockingCall<'_> {
    /// Gathers lists of different lengths, which are known, at every rank.
    fn allgather_word_lists(
        &mut self,
        digest: CallDigest,
        call: &'static str,
        words: &[u64],
        lens: &[usize],
    ) -> Result<Vec<u64>> {
        let too_long = || Error::new(ErrorClass::NoMem, call, "the graph has too many edges for the memory");
        let (mut begins, mut total) = (Vec::with_capacity(lens.len()), 0usize);
        for len in lens {
            begins.push(total);
            total = total.checked_add(*len).ok_or_else(too_long)?;
        }
        let mut all = Vec::new();
        all.try_reserve_exact(total).map_err(|_| too_long())?;
        all.resize(total, 0u64);
        let algorithm =
            if size_of_val(&*all) <= super::collective_parts::LINEAR_MAX_BYTES { "linear" } else { "ring" };
        let recv_block = |rank: u32| Span::new(BufIndex::RECV, begins[rank as usize], lens[rank as usize]);
        let own = Some(Span::new(BufIndex::SEND, 0, words.len()));
        let arguments = Arguments { own, recv: &recv_block, ..Arguments::new(self.rank(), self.size()) };
        let (send, recv) = (Buf::slice(words), Buf::slice_mut(&mut all));
        // SAFETY: both buffers are borrowed for the call and do not overlap; the steps only read the first.
        unsafe { self.run_part(digest, (Operation::Allgather, algorithm), &arguments, [&send, &recv]) }?;
        Ok(all)
    }
}
