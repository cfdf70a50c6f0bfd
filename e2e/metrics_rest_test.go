package e2e

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/testenv"
)

// awaitMetrics waits until the server's metrics satisfy a condition.
func (s *server) awaitMetrics(t *testing.T, what string, is func(m scrape) bool) {
	t.Helper()
	for end := time.Now().Add(2 * promptTimeout); !is(s.scrape()); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("it never says so: %s", what)
			return
		}
	}
}

// apiMetrics compares the API's request counters with the number of sent requests, by response
// status.
func (s *server) apiMetrics(t *testing.T, answers map[int]int) {
	t.Helper()
	m, all := s.scrape(), 0
	for status, want := range answers {
		all += want
		if got := m.sum("brig_http_requests_total", `method="POST"`, `route="/v1/run"`, fmt.Sprintf("status=%q", fmt.Sprint(status))); got != float64(want) {
			t.Errorf("%v programs were answered with %d, want %d", got, status, want)
		}
	}
	if got := m.sum("brig_http_request_seconds_count", `method="POST"`, `route="/v1/run"`); got != float64(all) {
		t.Errorf("%v programs have a time, want %d", got, all)
	}
	if sum, of := m.sum("brig_http_request_seconds_sum", `route="/v1/run"`), m.sum("brig_execution_seconds_sum"); sum < of {
		t.Errorf("the requests took %v s, and their programs %v s", sum, of)
	}
	s.awaitMetrics(t, "this is the only request", func(m scrape) bool { return m.sum("brig_http_requests_in_flight") == 1 })
	// TestServerShedsLoad and TestRequestsAreRejectedBeforeBodies cover servers on which these metrics change.
	for _, name := range []string{"brig_http_body_bytes", "brig_shedding", "brig_shed_total"} {
		if got := s.scrape().sum(name); got != 0 {
			t.Errorf("%s is %v on a server with nothing to do", name, got)
		}
	}
}

// queueMetrics verifies the metrics of the creation queue while many clients create sandboxes.
// The server creates two sandboxes per CPU at a time, and the other requests wait. Because a
// scrape shows only one instant, several rounds may be necessary to observe both states.
func (s *server) queueMetrics(t *testing.T) {
	t.Helper()
	limit := 2 * runtime.NumCPU()
	n := limit + 8
	var making, waiting float64
	for round := 0; round < 5 && (making < float64(limit) || waiting < 1); round++ {
		s.fillQueue(t, n, func(m scrape) {
			making, waiting = max(making, m.sum("brig_queue_making")), max(waiting, m.sum("brig_queue_depth"))
		})
	}
	// A trial may create one more sandbox, which is not one of the clients' requests. With the
	// race detector, a scrape takes longer than the wait.
	seen := making == float64(limit) && waiting >= 1 || testenv.RaceEnabled
	if !seen || making > float64(limit) || waiting > float64(n-limit+1) {
		t.Errorf("%v were made at once and %v waited, want %d and up to %d", making, waiting, limit, n-limit)
	}
}

// fillQueue creates n sandboxes concurrently, calls look with the metrics meanwhile, and ends the
// sandboxes.
func (s *server) fillQueue(t *testing.T, n int, look func(scrape)) {
	t.Helper()
	svc, before := s.client(), s.scrape()
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			spec := brig.Spec{Name: fmt.Sprintf("queue-%d", i), Limits: brig.Limits{Memory: 96 * brig.MiB}} // the pool has no sandbox with these limits
			if _, err := svc.Create(t.Context(), spec); err != nil {
				t.Errorf("sandbox %d: %v", i, err)
			}
		})
	}
	made := make(chan struct{})
	go func() { all.Wait(); close(made) }()
	for over := false; !over; {
		select {
		case <-made:
			over = true
		default:
			look(s.scrape())
		}
	}
	s.awaitMetrics(t, "all are made, and nobody waits", func(m scrape) bool {
		return m.sum("brig_queue_making") == 0 && m.sum("brig_queue_depth") == 0 && m.sum("brig_sandboxes_active") == float64(n)
	})
	for i := range n {
		if _, err := svc.Kill(t.Context(), fmt.Sprintf("queue-%d", i)); err != nil {
			t.Error(err)
		}
	}
	const ended, killed = "brig_sandboxes_ended_total", `reason="killed"`
	if got, was := s.scrape().sum(ended, killed), before.sum(ended, killed); got != was+float64(n) {
		t.Errorf("%v were killed, want %d", got-was, n)
	}
}

// poolMetrics compares the pool's metrics with the sandboxes on the host while no other sandboxes
// exist.
func (s *server) poolMetrics(t *testing.T) {
	t.Helper()
	page, err := s.client().List(t.Context(), brig.ListOptions{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for _, box := range page.Sandboxes { // ended sandboxes remain on the host until they are removed
		if err := s.client().Remove(t.Context(), box.Spec.Name); err != nil {
			t.Error(err)
		}
	}
	there := func() float64 {
		list, err := filepath.Glob(filepath.Join(s.dir, "sandboxes", "*"))
		if err != nil {
			t.Fatal(err)
		}
		n := 0.0
		for _, dir := range list {
			// Every second, a trial creates a sandbox that does not belong to
			// the pool.
			if order, _ := os.ReadFile(filepath.Join(dir, "order.json")); !bytes.Contains(order, []byte(`"Hostname":"trial-`)) {
				n++
			}
		}
		return n
	}
	s.awaitMetrics(t, "what should wait does, and is what there is", func(m scrape) bool {
		size := m.sum("brig_pool_size")
		return size >= 1 && m.sum("brig_pool_ready") == size && m.sum("brig_pool_making") == 0 && m.sum("brig_pool_utilisation_ratio") == 0 && there() == size
	})
	m := s.scrape()
	if t.Failed() {
		t.Logf("there are %v on the machine; %v should wait, %v do, %v are being made", there(), m.sum("brig_pool_size"), m.sum("brig_pool_ready"), m.sum("brig_pool_making"))
	}
	if failed := m.sum("brig_pool_failures_total"); failed != 0 {
		t.Errorf("%v could not be made ahead of time", failed)
	}
	if took, total := m.sum("brig_pool_refill_seconds", `language="python"`), m.sum("brig_sandbox_create_seconds_sum", `for="pool"`); took <= 0 || took > total {
		t.Errorf("one of them takes %v s to make; all took %v s", took, total)
	}
}

// fixedMetrics verifies the metrics that do not depend on the workload.
func (s *server) fixedMetrics(t *testing.T) {
	t.Helper()
	m := s.scrape()
	out, err := exec.Command(bin(t, "brig"), "version").Output()
	if err != nil {
		t.Fatal(err)
	}
	version := strings.Fields(strings.TrimPrefix(string(out), "brig "))[0]
	if m.sum("brig_build_info", fmt.Sprintf("version=%q", version)) != 1 {
		t.Errorf("brig_build_info does not say that this is %s", version)
	}
	var disk syscall.Statfs_t
	if err := syscall.Statfs(s.dir, &disk); err != nil {
		t.Fatal(err)
	}
	if got, want := m.sum("brig_host_disk_bytes", `what="total"`), float64(disk.Blocks)*float64(disk.Bsize); got != want {
		t.Errorf("the disk has %v bytes, statfs says %v", got, want)
	}
}

// costMetrics compares the cost of a day in the usage records with the counters.
func (s *server) costMetrics(t *testing.T, day string) {
	t.Helper()
	s.awaitMetrics(t, "this day has cost what executions have", func(m scrape) bool {
		all := m.sum("brig_cost_total")
		return all > 0 && math.Abs(m.sum("brig_cost_today")-all) < 1e-6 || brig.DayOf(time.Now()) != day
	})
	if avg := s.scrape().sum("brig_cost_daily_average"); avg != 0 && brig.DayOf(time.Now()) == day {
		t.Errorf("days before this one have cost %v on average, and there were none", avg)
	}
}

// everyMetric reports metrics that no test compares with an expected value.
func (s *server) everyMetric(t *testing.T) {
	t.Helper()
	var tests strings.Builder
	for _, file := range []string{"metrics_test.go", "metrics_rest_test.go", "codes_test.go"} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tests.Write(b)
	}
	_, page := s.do("GET", "/metrics", "")
	n := 0
	for line := range strings.Lines(page) {
		f := strings.Fields(line)
		if len(f) < 4 || f[1] != "TYPE" || !strings.HasPrefix(f[2], "brig_") {
			continue
		}
		n++
		suffix := `"`
		if f[3] == "histogram" {
			suffix = `_count"`
		}
		if !strings.Contains(tests.String(), `"`+f[2]+suffix) {
			t.Errorf("no test says what %s should be", f[2])
		}
	}
	if n < 40 {
		t.Errorf("there are only %d metrics", n)
	}
}
