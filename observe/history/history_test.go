package history

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
)

// fakes are sandboxes that use half a processor.
type fakes struct {
	live  []string
	other map[string]bool // not recorded
	began map[string]time.Time
}

func (f *fakes) recorder() *Recorder {
	return New(Options{
		Live: func() []string { return f.live },
		Describe: func(_ context.Context, id string) (*Sandbox, error) {
			if f.other[id] {
				return nil, nil
			}
			return &Sandbox{Tenant: "acme", Limits: brig.Limits{CPUs: 1}}, nil
		},
		Measure: func(_ context.Context, id string) (*brig.Usage, error) {
			if id == "far" {
				return nil, brig.Errorf(brig.Unimplemented, "it is far away")
			}
			now := time.Now()
			return &brig.Usage{At: now, CPU: now.Sub(f.began[id]) / 2, Memory: 10 * pageSize, Cache: pageSize, Disk: 3 * pageSize}, nil
		},
	})
}

func (f *fakes) start(id string) {
	if f.began == nil {
		f.began = map[string]time.Time{}
	}
	f.live, f.began[id] = append(f.live, id), time.Now()
}

// TestUsage verifies the samples of a sandbox, also over a pause, after which its CPU time begins
// again.
func TestUsage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{other: map[string]bool{"other": true}}
		r := f.recorder()
		for _, id := range []string{"one", "far", "other"} {
			f.start(id)
		}
		ctx, stop := context.WithCancel(t.Context())
		go r.Run(ctx)
		begin := time.Now()
		time.Sleep(61 * time.Second)
		f.live = nil
		time.Sleep(time.Hour)
		f.start("one")
		time.Sleep(time.Minute)
		stop()
		synctest.Wait()
		box, all := r.Sandbox("one")
		if box == nil || box.Tenant != "acme" || len(all) != 11+11 {
			t.Fatalf("%+v, %d samples", box, len(all))
		}
		for _, s := range all {
			if s.CPUPercent != 50 || s.Memory != 10*pageSize || s.Cache != pageSize || s.Disk != 3*pageSize {
				t.Errorf("%+v", s)
			}
			if at := s.At.Sub(begin); at > 61*time.Second && at < time.Hour {
				t.Errorf("a sample of the pause, after %v", at)
			}
		}
		if box, far := r.Sandbox("far"); box == nil || len(far) != 0 {
			t.Errorf("%+v, %+v", box, far)
		}
		if box, other := r.Sandbox("other"); box != nil || len(other) != 0 {
			t.Errorf("%+v, %+v", box, other)
		}
	})
}

// TestMeasuringTakesBoundedTime verifies that samples are rarer if measuring takes long.
func TestMeasuringTakesBoundedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{}
		f.start("one")
		r := f.recorder()
		measure, spent := r.o.Measure, time.Duration(0)
		r.o.Measure = func(ctx context.Context, id string) (*brig.Usage, error) {
			time.Sleep(2 * time.Second)
			spent += 2 * time.Second
			return measure(ctx, id)
		}
		ctx, stop := context.WithCancel(t.Context())
		go r.Run(ctx)
		time.Sleep(time.Hour)
		stop()
		synctest.Wait()
		_, all := r.Sandbox("one")
		if n := len(all); spent > time.Hour/maxShare+2*time.Second || n < 85 {
			t.Errorf("%d samples in %v", n, spent)
		}
		for _, s := range all {
			if s.CPUPercent != 50 {
				t.Errorf("%+v", s)
			}
		}
	})
}

// TestTallies verifies the numbers of a tenant's sandboxes.
func TestTallies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{}
		r := f.recorder()
		ctx, stop := context.WithCancel(t.Context())
		go r.Run(ctx)
		time.Sleep(7 * time.Second)
		for i := range 10 {
			f.start(fmt.Sprint(i))
		}
		r.Started("acme", 10)
		time.Sleep(5 * time.Second)
		f.live = nil
		time.Sleep(time.Hour)
		stop()
		synctest.Wait()
		all := r.Tenant("acme")
		if len(all) != 2 || all[0].Concurrent != 10 || all[0].StartRate != 2 || all[0].MaxStartRate != 2 || all[1].Concurrent != 0 {
			t.Errorf("%+v", all)
		}
		if other := r.Tenant("poor"); len(other) != 0 {
			t.Errorf("%+v", other)
		}
	})
}

// TestSeriesBecomeCoarser verifies that a series covers its whole time with a bounded number of
// points.
func TestSeriesBecomeCoarser(t *testing.T) {
	usage := series[usagePoint]{combine: combineUsage}
	tallies := series[tallyPoint]{combine: combineTally}
	const n = 100 * maxPoints
	total := 0
	for i := range int64(n) {
		total += usage.add(usagePoint{at: 1000 * i, cpu: float32(i % 2), memory: uint32(i)})
		tallies.add(tallyPoint{at: 1000 * i, span: 1000, concurrent: uint32(i % 7), started: 1, maxStartsRate: float32(i % 3)})
	}
	if total != len(usage.points) || total > maxPoints || total < maxPoints/3 {
		t.Errorf("%d points, counted %d", len(usage.points), total)
	}
	if first, last := usage.points[0], usage.points[total-1]; first.at > 1000*n/100 || last.at != 1000*(n-1) || last.memory != n-1 {
		t.Errorf("from %+v to %+v", first, last)
	}
	for _, p := range usage.points {
		if p.cpu < 0.4 || p.cpu > 0.6 {
			t.Errorf("%+v", p)
		}
	}
	started := uint32(0)
	for _, p := range tallies.points {
		started += p.started
		if got := p.tally(); got.Concurrent != 6 || got.StartRate != 1 || got.MaxStartRate != 2 {
			t.Errorf("%+v", got)
		}
	}
	if started != n {
		t.Errorf("%d starts, want %d", started, n)
	}
}

// TestTotalIsLimited verifies that the series together have a bounded number of points: those of
// ended sandboxes go first.
func TestTotalIsLimited(t *testing.T) {
	r := (&fakes{}).recorder()
	now := time.Now()
	for i := range 2 * maxTotal / maxPoints {
		s := &recorded{usage: series[usagePoint]{combine: combineUsage}}
		if i%4 != 0 {
			s.gone = now.Add(time.Duration(i) * time.Millisecond)
		}
		r.sandboxes[fmt.Sprint(i)] = s
		for range maxPoints {
			r.total += s.usage.add(usagePoint{})
		}
	}
	r.limit(now)
	points, live := 0, 0
	for _, s := range r.sandboxes {
		points += len(s.usage.points)
		if s.gone.IsZero() {
			live++
		}
	}
	if points != r.total || r.total > maxTotal || r.total < maxTotal-maxPoints {
		t.Errorf("%d points, counted %d", points, r.total)
	}
	if want := (2*maxTotal/maxPoints + 3) / 4; live != want || r.sandboxes["1"] != nil || r.sandboxes[fmt.Sprint(2*maxTotal/maxPoints-1)] == nil {
		t.Errorf("%d live sandboxes of %d", live, want)
	}
	for i := range 2 * maxTotal / maxPoints {
		s := &recorded{usage: series[usagePoint]{combine: combineUsage}}
		r.sandboxes[fmt.Sprint("live ", i)] = s
		for range maxPoints {
			r.total += s.usage.add(usagePoint{})
		}
	}
	if r.limit(now); r.total > maxTotal || r.total < maxTotal/3 {
		t.Errorf("%d points", r.total)
	}
	old := now.Add(-keepGone - time.Second)
	for _, s := range r.sandboxes {
		s.gone = old
	}
	if r.limit(now); len(r.sandboxes) != 0 {
		t.Errorf("%d old sandboxes", len(r.sandboxes))
	}
}

// BenchmarkRecord measures one sample of 1,000 sandboxes without the measurements themselves.
func BenchmarkRecord(b *testing.B) {
	f := &fakes{}
	for i := range 1000 {
		f.start(fmt.Sprint(i))
	}
	r := f.recorder()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for b.Loop() {
		r.Record(b.Context())
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-min(before.HeapAlloc, after.HeapAlloc))/1000, "B/sandbox")
	runtime.KeepAlive(r)
}
