//! Compares the tile and list kernels of all instruction sets that this machine has with simple copies.

use super::block_copy::{BlockCopy, Gather, Scatter, SelectRoutine, by_length};
use super::block_list::{self, ListKernel};
use super::tile::{self, Tile, TileKernel, steps};

/// The kernels (pack, unpack) of a copy routine for each instruction set.
struct Tiles;

impl SelectRoutine for Tiles {
    type Out = Vec<(TileKernel, TileKernel)>;

    fn pick<S: BlockCopy>(&self) -> Self::Out {
        #[cfg_attr(not(target_arch = "x86_64"), expect(unused_mut))]
        let mut all: Self::Out = vec![(tile::base::<Gather, S>, tile::base::<Scatter, S>)];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") {
                all.push((tile::avx2::<Gather, S>, tile::avx2::<Scatter, S>));
            }
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl") {
                all.push((tile::avx512::<Gather, S>, tile::avx512::<Scatter, S>));
            }
        }
        all
    }
}

struct Lists;

impl SelectRoutine for Lists {
    type Out = Vec<(ListKernel, ListKernel)>;

    fn pick<S: BlockCopy>(&self) -> Self::Out {
        #[cfg_attr(not(target_arch = "x86_64"), expect(unused_mut))]
        let mut all: Self::Out =
            vec![(block_list::base::<Gather, S, false>, block_list::base::<Scatter, S, true>)];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") {
                all.push((block_list::avx2::<Gather, S, true>, block_list::avx2::<Scatter, S, false>));
            }
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl") {
                all.push((block_list::avx512::<Gather, S, true>, block_list::avx512::<Scatter, S, true>));
            }
        }
        all
    }
}

fn lengths() -> impl Iterator<Item = usize> {
    (1..=200).chain([255, 256, 257, 300, 512, 1000, 1024, 2561, 4096, 5000, 21_000])
}

fn numbered(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + (i >> 8) * 7 + 5) as u8).collect()
}

#[test]
fn tiles_of_all_instruction_sets_copy_all_blocks() {
    const ROWS: usize = 3;
    for block in lengths() {
        let mut shapes = vec![(block, 5), (2 * block, 37), (block + 5, 11)];
        if block <= 16 {
            // More blocks than `sparse::MIN_BLOCKS`, and for one length more than `sparse::L2_BLOCKS`.
            shapes.extend([(130, 301), (130, if block == 8 { 4099 } else { 1 })]);
        }
        for (stride, columns) in shapes {
            let row = columns * stride + 7;
            let starts: Vec<usize> =
                (0..ROWS).flat_map(|r| (0..columns).map(move |c| r * row + c * stride)).collect();
            // Ends with the last block, so that a memory checker detects accesses beyond.
            let data = numbered(starts[starts.len() - 1] + block);
            let want: Vec<u8> = starts.iter().flat_map(|&at| data[at..at + block].to_vec()).collect();
            let tile = |user: *mut u8, packed: *mut u8| Tile {
                user,
                packed,
                rows: ROWS,
                row_stride: row as isize,
                columns,
                steps: steps(stride as isize),
                block,
            };
            for (pack, unpack) in by_length(block, &Tiles) {
                let mut packed = vec![0; want.len()];
                // SAFETY: the tile lies in `data`, and its packed form fills `packed`; the kernel is for this length.
                unsafe { pack(&tile(data.as_ptr().cast_mut(), packed.as_mut_ptr())) };
                assert!(packed == want, "pack {ROWS} x {columns} blocks of {block}, {stride} apart");
                let mut back = vec![0; data.len()];
                let mut wanted = back.clone();
                starts.iter().for_each(|&at| wanted[at..at + block].copy_from_slice(&data[at..at + block]));
                // SAFETY: as above, into `back`.
                unsafe { unpack(&tile(back.as_mut_ptr(), packed.as_mut_ptr())) };
                assert!(back == wanted, "unpack {ROWS} x {columns} blocks of {block}, {stride} apart");
            }
        }
    }
}

#[test]
fn lists_of_all_instruction_sets_copy_all_blocks() {
    const N: usize = 41;
    for block in lengths() {
        let offsets: Vec<u32> = (0..N).map(|i| (i * 17 % N * (block + 3)) as u32).collect();
        let data = numbered((N - 1) * (block + 3) + block);
        let want: Vec<u8> =
            offsets.iter().flat_map(|&at| data[at as usize..at as usize + block].to_vec()).collect();
        for (pack, unpack) in by_length(block, &Lists) {
            let mut packed = vec![0; want.len()];
            // SAFETY: the blocks lie in `data`, and fill `packed`; the kernel is for this length.
            unsafe { pack(data.as_ptr().cast_mut(), &offsets, packed.as_mut_ptr(), block) };
            assert!(packed == want, "pack blocks of {block}");
            let mut back = vec![0; data.len()];
            let mut wanted = back.clone();
            offsets.iter().map(|&at| at as usize).for_each(|at| {
                wanted[at..at + block].copy_from_slice(&data[at..at + block]);
            });
            // SAFETY: as above, into `back`.
            unsafe { unpack(back.as_mut_ptr(), &offsets, packed.as_mut_ptr(), block) };
            assert!(back == wanted, "unpack blocks of {block}");
        }
    }
}
