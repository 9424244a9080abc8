//! The documentation of `mpj::raw` has two tables of MPI functions: those with a counterpart, and those without one.

use std::collections::BTreeSet;

/// The functions of MPI 4.1 for messages, collectives, communicators, datatypes and their environment, and those of
/// MPI 5.0 that convert handles, without the prefix `MPI_`. Those with the suffix `_c` are omitted: only their counts
/// are larger.
const FUNCTIONS: &str = "
    Abi_get_fortran_booleans Abi_get_fortran_info Abi_get_info Abi_get_version Abi_set_fortran_booleans
    Abi_set_fortran_info Comm_fromint Comm_toint Errhandler_fromint Errhandler_toint Group_fromint Group_toint
    Info_fromint Info_toint Message_fromint Message_toint Op_fromint Op_toint Request_fromint Request_toint
    Type_fromint Type_toint
    Abort Alloc_mem Finalize Finalized Free_mem Get_hw_resource_info Get_library_version Get_processor_name
    Get_version Init Init_thread Initialized Is_thread_main Pcontrol Query_thread Wtick Wtime
    Add_error_class Add_error_code Add_error_string Comm_call_errhandler Comm_create_errhandler
    Comm_get_errhandler Comm_set_errhandler Errhandler_free Error_class Error_string Remove_error_class
    Remove_error_code Remove_error_string
    Allgather Allgatherv Allreduce Alltoall Alltoallv Alltoallw Barrier Bcast Exscan Gather Gatherv
    Op_commutative Op_create Op_free Reduce Reduce_local Reduce_scatter Reduce_scatter_block Scan Scatter
    Scatterv
    Allgather_init Allgatherv_init Allreduce_init Alltoall_init Alltoallv_init Alltoallw_init Barrier_init
    Bcast_init Exscan_init Gather_init Gatherv_init Neighbor_allgather_init Neighbor_allgatherv_init
    Neighbor_alltoall_init Neighbor_alltoallv_init Neighbor_alltoallw_init Reduce_init
    Reduce_scatter_block_init Reduce_scatter_init Scan_init Scatter_init Scatterv_init
    Attr_delete Attr_get Attr_put Comm_create_keyval Comm_delete_attr Comm_free_keyval Comm_get_attr
    Comm_set_attr Keyval_create Keyval_free Type_create_keyval Type_delete_attr Type_free_keyval Type_get_attr
    Type_set_attr
    Bsend Bsend_init Buffer_attach Buffer_detach Buffer_flush Buffer_iflush Cancel Grequest_complete
    Grequest_start Ibsend Improbe Imrecv Iprobe Irecv Irsend Isend Isendrecv Isendrecv_replace Issend Mprobe
    Mrecv Probe Recv Recv_init Request_free Request_get_status Request_get_status_all Request_get_status_any
    Request_get_status_some Rsend Rsend_init Send Send_init Sendrecv Sendrecv_replace Ssend Ssend_init Start
    Startall Status_get_error Status_get_source Status_get_tag Status_set_cancelled Status_set_error
    Status_set_source Status_set_tag Test Test_cancelled Testall Testany Testsome Wait Waitall Waitany
    Waitsome
    Cart_coords Cart_create Cart_get Cart_map Cart_rank Cart_shift Cart_sub Cartdim_get Dims_create
    Dist_graph_create Dist_graph_create_adjacent Dist_graph_neighbors Dist_graph_neighbors_count Graph_create
    Graph_get Graph_map Graph_neighbors Graph_neighbors_count Graphdims_get Topo_test
    Comm_attach_buffer Comm_compare Comm_create Comm_create_group Comm_detach_buffer Comm_dup
    Comm_dup_with_info Comm_flush_buffer Comm_free Comm_get_info Comm_get_name Comm_group Comm_iflush_buffer
    Comm_rank Comm_remote_group Comm_remote_size Comm_set_info Comm_set_name Comm_size Comm_split
    Comm_split_type Comm_test_inter Intercomm_create Intercomm_merge
    Comm_idup Comm_idup_with_info Iallgather Iallgatherv Iallreduce Ialltoall Ialltoallv Ialltoallw Ibarrier
    Ibcast Iexscan Igather Igatherv Ireduce Ireduce_scatter Ireduce_scatter_block Iscan Iscatter Iscatterv
    Aint_add Aint_diff Get_address Get_count Get_elements Get_elements_x Pack Pack_external Pack_external_size
    Pack_size Status_set_elements Status_set_elements_x Type_commit Type_contiguous Type_create_darray
    Type_create_f90_complex Type_create_f90_integer Type_create_f90_real Type_create_hindexed
    Type_create_hindexed_block Type_create_hvector Type_create_indexed_block Type_create_resized
    Type_create_struct Type_create_subarray Type_dup Type_free Type_get_contents Type_get_envelope
    Type_get_extent Type_get_extent_x Type_get_name Type_get_true_extent Type_get_true_extent_x
    Type_get_value_index Type_indexed Type_match_size Type_set_name Type_size Type_size_x Type_vector Unpack
    Unpack_external
    Group_compare Group_difference Group_excl Group_free Group_incl Group_intersection Group_range_excl
    Group_range_incl Group_rank Group_size Group_translate_ranks Group_union
    Ineighbor_allgather Ineighbor_allgatherv Ineighbor_alltoall Ineighbor_alltoallv Ineighbor_alltoallw
    Neighbor_allgather Neighbor_allgatherv Neighbor_alltoall Neighbor_alltoallv Neighbor_alltoallw
    Info_create Info_create_env Info_delete Info_dup Info_free Info_get Info_get_nkeys Info_get_nthkey
    Info_get_string Info_get_valuelen Info_set
";

/// Functions that the first table has as well.
const PARTITIONED: [&str; 4] = ["Psend_init", "Precv_init", "Pready", "Parrived"];

/// Returns the names in the first column of the rows.
fn names(table: &str) -> Vec<&str> {
    let cells = table.lines().filter(|line| line.starts_with("| `")).filter_map(|row| row.split('|').nth(1));
    let names = cells.flat_map(|cell| cell.split(',')).map(|name| {
        let name = name.trim().strip_prefix('`').and_then(|name| name.strip_suffix('`'));
        name.unwrap_or_else(|| panic!("expected only names in {table}"))
    });
    names.collect()
}

#[test]
fn every_mpi_function_is_in_one_table() {
    let page = include_str!("../../src/raw/mpi.md");
    let (here, absent) = page.split_once("Without a counterpart").expect("the page has two tables");
    let listed = [names(here), names(absent)].concat();
    let once: BTreeSet<&str> = listed.iter().copied().collect();
    let twice: Vec<_> =
        once.iter().filter(|name| listed.iter().filter(|other| other == name).count() > 1).collect();
    assert!(twice.is_empty(), "in two rows: {twice:?}");
    let functions: BTreeSet<&str> = FUNCTIONS.split_whitespace().collect();
    assert_eq!(functions.len(), 304);
    let missing: Vec<_> = functions.difference(&once).collect();
    assert!(missing.is_empty(), "in no table: {missing:?}");
    let unknown: Vec<_> = once.difference(&functions).filter(|name| !PARTITIONED.contains(name)).collect();
    assert!(unknown.is_empty(), "not functions of MPI: {unknown:?}");
}
