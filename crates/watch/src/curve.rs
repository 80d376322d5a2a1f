//! A bounded curve: recent points in full, older ones further apart, and a level stretch as its two ends.

pub const MOST_POINTS: usize = 256;
/// Changes below this are no change.
const LEVEL_KIB: u64 = 256;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Point {
    pub time_ns: u64,
    pub resident_kib: u64,
    pub swap_kib: u64,
}

#[derive(Default)]
pub struct Curve(Vec<Point>);

impl Curve {
    pub fn points(&self) -> &[Point] {
        &self.0
    }

    pub fn into_points(self) -> Vec<Point> {
        self.0
    }

    pub fn push(&mut self, point: Point) {
        if let [.., before, last] = self.0.as_mut_slice() {
            // Against the first end, so that slow growth adds up to a point of its own.
            if is_level(before, last) && is_level(before, &point) {
                *last = point;
                return;
            }
        }
        if self.0.len() >= MOST_POINTS {
            self.thin();
        }
        self.0.push(point);
    }

    /// Every second point of the older half goes; the first stays, and so does the highest.
    fn thin(&mut self) {
        let half = self.0.len() / 2;
        let highest =
            (0..self.0.len()).max_by_key(|place| self.0.get(*place).map(|point| point.resident_kib));
        let mut place = 0;
        self.0.retain(|_| {
            let keep = place >= half || place % 2 == 0 || Some(place) == highest;
            place += 1;
            keep
        });
    }
}

fn is_level(one: &Point, other: &Point) -> bool {
    one.resident_kib.abs_diff(other.resident_kib) < LEVEL_KIB
        && one.swap_kib.abs_diff(other.swap_kib) < LEVEL_KIB
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time_ns: u64, resident_kib: u64) -> Point {
        Point {
            time_ns,
            resident_kib,
            swap_kib: 0,
        }
    }

    #[test]
    fn a_level_stretch_is_its_two_ends() {
        let mut curve = Curve::default();
        (0..1000).for_each(|time| curve.push(at(time, 5000 + time % 3)));
        assert_eq!(curve.points().len(), 2);
        assert_eq!(curve.points().last(), Some(&at(999, 5000)));
    }

    #[test]
    fn slow_growth_is_not_lost_in_level_stretches() {
        let mut curve = Curve::default();
        (0..10_000).for_each(|time| curve.push(at(time, 5000 + time)));
        let points = curve.points();
        assert!(points.len() > 30);
        assert!(points.windows(2).all(|pair| matches!(pair, [one, other]
            if other.resident_kib - one.resident_kib <= 2 * LEVEL_KIB)));
    }

    #[test]
    fn it_is_bounded_and_keeps_the_beginning_the_end_and_the_peak() {
        let mut curve = Curve::default();
        for time in 0..100_000 {
            curve.push(at(
                time,
                if time == 5_000 {
                    1 << 30
                } else {
                    time * 1000 % 77_777_000
                },
            ));
        }
        let points = curve.points();
        assert!(points.len() <= MOST_POINTS);
        assert_eq!(points.first(), Some(&at(0, 0)));
        assert_eq!(points.last().map(|point| point.time_ns), Some(99_999));
        assert!(points.contains(&at(5_000, 1 << 30)));
        assert!(points.is_sorted_by_key(|point| point.time_ns));
    }
}
