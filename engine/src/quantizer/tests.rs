//! The quantizer against plain arithmetic, on every kernel that this CPU has.

use super::*;
use crate::kernel::Kernel;
use crate::kernel::random::Random;
use crate::metric::Metric;

/// Shapes with odd sizes: (subspaces, codewords, sub_dim).
const SHAPES: [(usize, usize, usize); 8] = [
    (1, 2, 1),
    (3, 16, 5),
    (8, 256, 16),
    (4, 128, 32),
    (2, 200, 3),
    (16, 256, 8),
    (5, 17, 7),
    (1, 256, 40),
];

fn codebook(
    random: &mut Random,
    (subspaces, codewords, sub_dim): (usize, usize, usize),
) -> Codebook {
    let shape = CodeShape::new(subspaces, codewords).unwrap();
    let values = random.normals(subspaces * codewords * sub_dim);
    Codebook::new(shape, sub_dim, values).unwrap()
}

fn selections(random: &mut Random, codebook: &Codebook) -> Vec<Selection> {
    vec![
        Selection::L2,
        Selection::Cosine,
        Selection::Product,
        Selection::Bilinear {
            w: random.normals(codebook.sub_dim() * codebook.sub_dim()),
        },
        Selection::Keys {
            keys: random.normals(codebook.values().len()),
        },
    ]
}

#[test]
fn every_kernel_gives_the_bits_of_the_scalar_one() {
    println!("not available on this CPU: {:?}", Kernel::unavailable());
    let mut random = Random::new(11);
    for shape in SHAPES {
        let codebook = codebook(&mut random, shape);
        let dim = codebook.dim();
        for (i, selection) in selections(&mut random, &codebook).into_iter().enumerate() {
            let hidden = [dim, 2 * dim + 1][i % 2];
            let head = (i != 2).then(|| {
                Head::new(
                    dim,
                    hidden,
                    random.normals(dim * hidden),
                    Some(random.normals(dim)),
                )
                .unwrap()
            });
            let rotation = (i % 2 == 1).then(|| random.normals(dim * dim));
            let metric = [Metric::Ip, Metric::L2][i % 2];
            let builder = Quantizer::builder(codebook.clone(), metric)
                .head(head)
                .activation([Activation::None, Activation::Elu][i / 2 % 2])
                .rotation(rotation)
                .selection(selection)
                .query_mode([QueryMode::Plain, QueryMode::Soft { temperature: 0.7 }][i % 2]);
            let plain = builder
                .clone()
                .kernel(Kernel::named("scalar").unwrap())
                .build()
                .unwrap();
            let n = 37;
            let vectors = random.normals(n * plain.input_dim());
            let (mut projected, mut codes) = (vec![0.0; n * dim], vec![0; n * shape.0]);
            plain.project(&vectors, &mut projected).unwrap();
            plain.quantize(&vectors, &mut codes).unwrap();
            let table = plain.table(&vectors[..plain.input_dim()]).unwrap();
            for kernel in Kernel::available() {
                let fast = builder.clone().kernel(kernel).build().unwrap();
                let (mut fast_projected, mut fast_codes) =
                    (vec![0.0; n * dim], vec![0; n * shape.0]);
                fast.project(&vectors, &mut fast_projected).unwrap();
                fast.quantize(&vectors, &mut fast_codes).unwrap();
                assert!(
                    projected
                        .iter()
                        .zip(&fast_projected)
                        .all(|(a, b)| a.to_bits() == b.to_bits()),
                    "{kernel:?} {shape:?}"
                );
                assert_eq!(codes, fast_codes, "{kernel:?} {shape:?}");
                assert_eq!(
                    table,
                    fast.table(&vectors[..plain.input_dim()]).unwrap(),
                    "{kernel:?} {shape:?}"
                );
            }
        }
    }
}

#[test]
fn selections_choose_what_their_equations_say() {
    let mut random = Random::new(5);
    let codebook = codebook(&mut random, (3, 40, 4));
    for selection in selections(&mut random, &codebook) {
        let quantizer = Quantizer::builder(codebook.clone(), Metric::Ip)
            .selection(selection.clone())
            .build()
            .unwrap();
        let vectors = random.normals(50 * 12);
        let mut codes = vec![0; 50 * 3];
        quantizer.quantize(&vectors, &mut codes).unwrap();
        for (z, codes) in vectors.chunks_exact(12).zip(codes.chunks_exact(3)) {
            for (m, (z, &code)) in z.chunks_exact(4).zip(codes).enumerate() {
                let score = |j: usize| -> f64 {
                    let c = codebook.codeword(m, j);
                    let dot = |a: &[f32], b: &[f32]| -> f64 {
                        a.iter()
                            .zip(b)
                            .map(|(x, y)| f64::from(*x) * f64::from(*y))
                            .sum()
                    };
                    match &selection {
                        Selection::L2 => -z
                            .iter()
                            .zip(c)
                            .map(|(z, c)| f64::from(z - c).powi(2))
                            .sum::<f64>(),
                        Selection::Cosine => dot(z, c) / (dot(z, z) * dot(c, c)).sqrt(),
                        Selection::Product => dot(z, c),
                        Selection::Bilinear { w } => (0..4)
                            .flat_map(|a| (0..4).map(move |b| (a, b)))
                            .map(|(a, b)| {
                                f64::from(z[a]) * f64::from(w[a * 4 + b]) * f64::from(c[b])
                            })
                            .sum(),
                        Selection::Keys { keys } => dot(z, &keys[(m * 40 + j) * 4..][..4]),
                    }
                };
                let best = (0..40).map(score).fold(f64::NEG_INFINITY, f64::max);
                assert!(
                    score(usize::from(code)) >= best - 1e-4,
                    "{}",
                    selection.name()
                );
            }
        }
    }
}

#[test]
fn a_table_scores_a_code_as_the_query_scores_its_codewords() {
    let mut random = Random::new(6);
    for metric in [Metric::Ip, Metric::L2] {
        let quantizer = Quantizer::builder(codebook(&mut random, (8, 256, 16)), metric)
            .build()
            .unwrap();
        let (vectors, query) = (random.normals(20 * 128), random.normals(128));
        let (mut codes, mut decoded) = (vec![0; 20 * 8], vec![0.0; 20 * 128]);
        quantizer.quantize(&vectors, &mut codes).unwrap();
        quantizer.decode(&codes, &mut decoded);
        let table = quantizer.table(&query).unwrap();
        for (code, row) in codes.chunks_exact(8).zip(decoded.chunks_exact(128)) {
            let plain: f64 = match metric {
                Metric::L2 => -query
                    .iter()
                    .zip(row)
                    .map(|(q, r)| f64::from(q - r).powi(2))
                    .sum::<f64>(),
                _ => query
                    .iter()
                    .zip(row)
                    .map(|(q, r)| f64::from(*q) * f64::from(*r))
                    .sum(),
            };
            assert!((f64::from(table.score(code)) - plain).abs() < 1e-4 * (1.0 + plain.abs()));
        }
    }
}

#[test]
fn a_soft_query_is_the_mean_of_its_codewords() {
    let shape = CodeShape::new(1, 2).unwrap();
    let codebook = Codebook::new(shape, 2, vec![1.0, 0.0, 0.0, 2.0]).unwrap();
    let quantizer = Quantizer::builder(codebook, Metric::Ip)
        .query_mode(QueryMode::Soft { temperature: 0.5 })
        .build()
        .unwrap();
    let table = quantizer.table(&[0.5, 0.5]).unwrap();
    // -|z - C|^2 is -0.5 and -2.5; p = softmax(-1, -5).
    let p = 1.0 / (1.0 + (-4.0f64).exp());
    let expected = [p as f32, (4.0 * (1.0 - p)) as f32];
    assert!((table.score(&[0]) - expected[0]).abs() < 1e-6);
    assert!((table.score(&[1]) - expected[1]).abs() < 1e-6);
}

#[test]
fn ties_go_to_the_lowest_codeword() {
    for kernel in Kernel::available() {
        let shape = CodeShape::new(1, 200).unwrap();
        let codebook = Codebook::new(shape, 3, vec![1.0; 600]).unwrap();
        let quantizer = Quantizer::builder(codebook, Metric::Ip)
            .kernel(kernel)
            .build()
            .unwrap();
        let mut code = [7; 5];
        quantizer.quantize(&[0.5; 15], &mut code).unwrap();
        assert_eq!(code, [0; 5], "{kernel:?}");
    }
}

#[test]
fn what_is_not_finite_or_becomes_so_is_refused_by_row() {
    for kernel in Kernel::available() {
        let mut random = Random::new(8);
        let quantizer = Quantizer::builder(codebook(&mut random, (2, 30, 3)), Metric::Ip)
            .kernel(kernel)
            .build()
            .unwrap();
        let mut codes = vec![0; 600 * 2];
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 3e38] {
            let mut vectors = random.normals(600 * 6);
            vectors[517 * 6 + 4] = bad;
            let error = quantizer
                .quantize(&vectors, &mut codes)
                .unwrap_err()
                .to_string();
            assert!(error.contains("row 517 "), "{kernel:?} {bad}: {error}");
            assert!(
                quantizer.table(&vectors[517 * 6..][..6]).is_err(),
                "{kernel:?} {bad}"
            );
        }
        assert!(quantizer.table(&[1.0; 5]).is_err());
        // Denormals and large finite values are served.
        let vectors: Vec<f32> = (0..3600)
            .map(|i| [1e-41, -1e-45, 1e18, -1e17, 0.0][i % 5])
            .collect();
        quantizer.quantize(&vectors, &mut codes).unwrap();
    }
}

#[test]
fn parts_that_do_not_fit_are_refused() {
    let mut random = Random::new(9);
    let codebook = codebook(&mut random, (2, 30, 3));
    let builder = || Quantizer::builder(codebook.clone(), Metric::Ip);
    let head = Head::new(5, 4, vec![0.0; 20], None).unwrap();
    assert!(builder().head(Some(head)).build().is_err());
    assert!(builder().rotation(Some(vec![0.0; 35])).build().is_err());
    assert!(
        builder()
            .rotation(Some(vec![f32::NAN; 36]))
            .build()
            .is_err()
    );
    assert!(
        builder()
            .selection(Selection::Bilinear { w: vec![1.0; 8] })
            .build()
            .is_err()
    );
    assert!(
        builder()
            .selection(Selection::Keys { keys: vec![1.0; 8] })
            .build()
            .is_err()
    );
    for temperature in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        assert!(
            builder()
                .query_mode(QueryMode::Soft { temperature })
                .build()
                .is_err()
        );
    }
    let shape = CodeShape::new(2, 30).unwrap();
    assert!(Codebook::new(shape, 3, vec![0.0; 179]).is_err());
    assert!(Codebook::new(shape, 3, vec![f32::INFINITY; 180]).is_err());
    assert!(LookupTable::new(shape, &[f32::NAN; 60]).is_err());
    assert!(
        LookupTable::new(shape, &[2e38; 60]).is_err(),
        "sums overflow"
    );
    assert!(Head::new(2, 2, vec![f32::NAN; 4], None).is_err());
}
