package egress

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig/internal/attack"
	"github.com/brig-run/brig/internal/testenv"
)

// channels are the measured channels.
var channels = []channel{
	{path: "/chunked", how: "h1", held: true},
	{path: "/chunked", how: "h2", held: true},
	{path: "/fragments", how: "ws"},
	{path: "/abort", how: "h1", held: true},
	{path: "/abort", how: "h2", held: true},
	{path: "/gzip", how: "h1"},
	{path: "/gzip", how: "h2"},
	{path: "/trailer", how: "h1"},
	{path: "/trailer", how: "h2"},
	{path: "/range", how: "h1"},
	{path: "/range", how: "h2"},
	{path: "/error", how: "h1"},
	{path: "/error", how: "h2"},
	{path: "/events", how: "h1", held: true},
	{path: "/events", how: "h2", held: true},
	{path: "/again", how: "h1"},
	{path: "/again", how: "h2"},
	{path: "/message", how: "ws"},
	{path: "/control", how: "ws"},
	{path: "/half", how: "ws"},
	{path: "/lines", how: "h1"},
	{path: "/grpc", how: "h2"},
	{path: "/length", how: "h1"},
	{path: "/length", how: "h2"},
	{path: "/pieces", how: "h1"},
	{path: "/close", how: "h1"},
	{path: "/deflate", how: "h1"},
	{path: "/shared", how: "h1"},
	{path: "/shared", how: "h2"},
	{path: "/redirect", how: "h1"},
	{path: "/redirect", how: "h2"},
	{path: "/head", how: "h1", method: "HEAD"},
	{path: "/head", how: "h2", method: "HEAD"},
	{path: "/unchanged", how: "h1"},
	{path: "/empty", how: "h1"},
	{path: "/hints", how: "h1"},
	{path: "/name", how: "h1"},
	{path: "/request", how: "h1", method: "POST"},
	{path: "/request", how: "h2", method: "POST"},
	{path: "/chunked", how: "h1", secondSecret: true},
	{path: "/chunked", how: "h1", form: "base64"},
	{path: "/chunked", how: "h1", form: "base64 after 1"},
	{path: "/chunked", how: "h1", form: "base64 after 2"},
	{path: "/chunked", how: "h1", form: "hex"},
	{path: "/chunked", how: "h1", form: "percent"},
	{path: "/chunked", how: "h1", form: "JSON"},
	{path: "/chunked", how: "h1", form: "HTML"},
	{path: "/chunked", how: "h1", form: "UTF-16"},
}

// sample contains the observations of right and wrong guesses. Guesses with the same index were
// sent directly after each other, in random order.
type sample [2][3][]float64

var measuredAspects = [3]string{"first byte", "whole answer", "length"}

// chance is the quantile of a normal distribution that is exceeded, in either
// direction, once in a million times.
const chance = 4.89

// separation returns how much the right and the wrong guesses of a sample differ in the given
// aspect. The unit is the difference that occurs by chance once in a million times. It uses the
// Kolmogorov-Smirnov test, and the mean and the ranks of the differences within pairs. The latter
// two are exact under any load, because the order within pairs is random. If the guesses are
// indistinguishable, positive and negative differences are equally frequent. A test of the trimmed
// means of the two samples is not exact if a load slows down about as many responses as are
// trimmed.
func (s *sample) separation(aspect int) (worst float64, text string) {
	a, b := slices.Sorted(slices.Values(s[0][aspect])), slices.Sorted(slices.Values(s[1][aspect]))
	n := float64(len(a))
	ks := 0.0
	for i, j := 0, 0; i < len(a) && j < len(b); {
		x := min(a[i], b[j])
		for i < len(a) && a[i] == x {
			i++
		}
		for j < len(b) && b[j] == x {
			j++
		}
		ks = max(ks, math.Abs(float64(i)-float64(j))/n)
	}
	ks /= math.Sqrt(math.Log(2e6)/2) * math.Sqrt(2/n)
	mean, ranks := s.within(aspect)
	return max(ks, mean/chance, ranks/chance), fmt.Sprintf("%.2f %.2f %.2f", ks, mean/chance, ranks/chance)
}

// within returns two statistics of the differences within pairs: the mean after clipping each
// difference to the range of 95 % of them, and Wilcoxon's.
func (s *sample) within(aspect int) (mean, ranks float64) {
	var of []float64
	for i, right := range s[0][aspect] {
		if d := right - s[1][aspect][i]; d != 0 {
			of = append(of, d)
		}
	}
	if len(of) == 0 {
		return 0, 0
	}
	slices.SortFunc(of, func(x, y float64) int { return cmp.Compare(math.Abs(x), math.Abs(y)) })
	bound := math.Abs(of[len(of)*19/20])
	var sum, squares, sumOfRanks, squaresOfRanks float64
	for from := 0; from < len(of); {
		to := from
		for to < len(of) && math.Abs(of[to]) == math.Abs(of[from]) {
			to++
		}
		rank := float64(from+to+1) / 2 // the mean rank of equal differences
		for _, d := range of[from:to] {
			sumOfRanks += math.Copysign(rank, d)
			squaresOfRanks += rank * rank
			size := min(math.Abs(d), bound)
			sum += math.Copysign(size, d)
			squares += size * size
		}
		from = to
	}
	return math.Abs(sum) / math.Sqrt(squares), math.Abs(sumOfRanks) / math.Sqrt(squaresOfRanks)
}

// result is the outcome of a channel's guesses.
type result struct {
	maxStat [3]float64 // by aspect
	text    string
	pairs   int
	equal   bool // the lengths are equal within every pair
}

func (r *result) distinguishability() float64 { return max(r.maxStat[0], r.maxStat[1], r.maxStat[2]) }

func (s *sample) result() (r result) {
	r.pairs, r.equal = len(s[0][0]), true
	for i, what := range measuredAspects {
		var text string
		r.maxStat[i], text = s.separation(i)
		r.text += fmt.Sprintf("%s %s  ", what, text)
	}
	for i := range r.pairs {
		r.equal = r.equal && s[0][2][i] == s[1][2][i]
	}
	return r
}

// measure sends the given number of guesses, half of them partly right. Each
// pair goes to a host with one of the two values, chosen at random. The right
// guess for one value is wrong for the other, so a text that is inherently slow
// has no effect. With early set, measure ends as soon as the guesses can be
// distinguished.
func (c channel) measure(t *testing.T, guesses int, control string, slow time.Duration, early bool) result {
	values := c.values()
	asks := [2]guessFunc{c.newGuesser(t, values[0], control, slow), c.newGuesser(t, values[1], control, slow)}
	for _, ask := range asks { // establish the connections
		ask(formOf(c.form, values[0][:20]))
		ask(formOf(c.form, values[1][:20]))
	}
	var s sample
	next := 50
	for n := 1; 2*n <= guesses; n++ {
		at, length := rand.IntN(2), 12+rand.IntN(len(guessed)-12)
		for _, i := range rand.Perm(2) {
			observed := asks[at](formOf(c.form, values[i][:length]))
			kind := at ^ i // 0: right
			for k, v := range []float64{observed.first, observed.whole, observed.length} {
				s[kind][k] = append(s[kind][k], v)
			}
		}
		if early && n == next {
			if r := s.result(); r.distinguishability() >= 1 {
				return r
			}
			next *= 2
		}
	}
	return s.result()
}

// table collects the result rows of channels as they finish.
type table struct {
	mu   sync.Mutex
	rows map[int]string
}

const tableHead = "| channel | guesses | first byte | whole answer | length | lengths | control told after |\n" +
	"| --- | ---: | ---: | ---: | ---: | --- | --- |\n"

func (b *table) add(t *testing.T, i int, row string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rows[i] = row
	path := os.Getenv("BRIG_TABLE")
	if path == "" {
		return
	}
	text := tableHead
	for i := range channels {
		text += b.rows[i]
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Error(err)
	}
}

// The times and lengths of responses do not distinguish partly right guesses from wrong ones on any
// channel. The control of each channel delays right guesses by a millisecond or less (50 µs with
// 100,000 guesses), or uses the previous hold-back algorithm. The control ends when the tests
// detect the difference. With few guesses, two longer delays follow if they do not. Statistics are multiples of the one-in-a-million quantile: below 1 is
// noise.
func TestPartialGuessesAreIndistinguishable(t *testing.T) {
	many, slow := testenv.Size(100, 4_000), time.Millisecond
	if testenv.RaceEnabled {
		many = 20 // only to find data races: the detector's overhead hides all differences
	}
	if n, err := strconv.Atoi(os.Getenv("BRIG_GUESSES")); err == nil {
		many = n
	}
	switch { // more guesses detect smaller differences
	case many >= 100_000:
		slow = 50 * time.Microsecond
	case many >= 20_000:
		slow = 200 * time.Microsecond
	}
	rows := &table{rows: map[int]string{}}
	for i, c := range channels {
		t.Run(strings.ReplaceAll(c.String(), "/", " "), func(t *testing.T) {
			t.Parallel()
			r := c.measure(t, many, "", 0, false)
			t.Logf("%d guesses: %s", 2*r.pairs, r.text)
			if r.distinguishability() >= 1 {
				t.Errorf("right guesses are told from wrong ones: %s", r.text)
			}
			attack.RecordCase("SEC-03", "guesses, measured: "+c.String(), r.distinguishability() >= 1)
			controls := []string{"slow"}
			if c.held {
				controls = append(controls, "held")
			}
			if testenv.RaceEnabled {
				controls = nil
			}
			summary := ""
			for _, control := range controls {
				delays := []time.Duration{slow}
				if control == "slow" && many < 20_000 {
					// A loaded machine delays responses by more than a millisecond. A longer
					// delay still fails if the measurement detects nothing.
					delays = append(delays, 4*slow, 16*slow)
				}
				var k result
				for _, d := range delays {
					k = c.measure(t, max(many, 10_000)/len(delays), control, d, true)
					t.Logf("control %s, %v: %d guesses: %s", control, d, 2*k.pairs, k.text)
					if k.distinguishability() >= 1 {
						break
					}
				}
				if k.distinguishability() < 1 {
					t.Errorf("control %s: right guesses are not told from wrong ones: %s", control, k.text)
				}
				attack.RecordMutant("SEC-03", "guesses, measured: "+c.String(), "holding back alike, "+control, k.distinguishability() >= 1)
				summary += fmt.Sprintf(", %s %d (%.1f)", control, 2*k.pairs, k.distinguishability())
			}
			lengths := "same distribution"
			if r.equal {
				lengths = "equal in each pair"
			}
			if len(controls) == 0 {
				return
			}
			rows.add(t, i, fmt.Sprintf("| %s | %d | %.2f | %.2f | %.2f | %s | %s |\n", c, 2*r.pairs, r.maxStat[0], r.maxStat[1], r.maxStat[2], lengths, summary[2:]))
		})
	}
}

// The statistics detect no difference where none exists, even if load on the
// machine delays some responses. They detect a shift of a fifth of the spread
// of the responses.
func TestStatisticsDetectOnlyRealDifferences(t *testing.T) {
	testenv.SkipWithRace(t, "one goroutine")
	chance := rand.New(rand.NewPCG(1, 2))
	for _, slow := range []float64{0, 0.01, 0.052, 0.1, 0.5} {
		for _, shift := range []float64{0, 0.2} {
			worst, least := 0.0, math.Inf(1)
			for range 20 {
				var s sample
				load := 0.0 // current load, which persists for some time
				for range 4_000 {
					for kind := range 2 {
						if chance.Float64() < 0.3 {
							load = 0
							if chance.Float64() < slow {
								load = 100 * chance.ExpFloat64()
							}
						}
						v := chance.NormFloat64() + load
						if kind == 0 {
							v += shift
						}
						s[kind][0] = append(s[kind][0], v)
					}
				}
				stat, _ := s.separation(0)
				worst, least = max(worst, stat), min(least, stat)
			}
			if shift == 0 && worst >= 1 {
				t.Errorf("%.0f %% slow: what is the same is told apart: %.2f", 100*slow, worst)
			}
			if shift > 0 && slow <= 0.1 && least < 1 {
				t.Errorf("%.0f %% slow: what is not is not: %.2f", 100*slow, least)
			}
		}
	}
}
