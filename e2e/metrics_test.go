package e2e

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// scrape holds the values of a /metrics page, by series.
type scrape map[string]float64

func (s *server) scrape() scrape {
	s.t.Helper()
	status, body := s.do("GET", "/metrics", "")
	if status != 200 {
		s.t.Fatalf("/metrics: %d %s", status, body)
	}
	out := scrape{}
	for line := range strings.Lines(body) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		i := strings.LastIndex(line, " ")
		v, err := strconv.ParseFloat(line[i+1:], 64)
		if err != nil {
			s.t.Fatalf("%s: %v", line, err)
		}
		out[line[:i]] = v
	}
	return out
}

// sum returns the sum of a metric's series that have all of these labels, each
// written as name="value".
func (m scrape) sum(metric string, labels ...string) (sum float64) {
	for series, v := range m {
		if m.isSeriesOf(series, metric, labels) {
			sum += v
		}
	}
	return sum
}

func (scrape) isSeriesOf(series, metric string, labels []string) bool {
	name, rest, _ := strings.Cut(series, "{")
	if name != metric {
		return false
	}
	for _, l := range labels {
		if !strings.Contains("{"+rest, "{"+l) && !strings.Contains(rest, ","+l) {
			return false
		}
	}
	return true
}

// hasSeries reports whether the metric has a series with these labels.
func (m scrape) hasSeries(metric string, labels ...string) bool {
	for series := range m {
		if m.isSeriesOf(series, metric, labels) {
			return true
		}
	}
	return false
}

// workload lists the kinds of executions of TestMetricsMatchWorkload and how often each one runs. It is
// the test's only source of expected values.
var workload = []struct {
	name, body string
	n          int
	language   string
	status     string
	code       string // SB code
	http       int
}{
	{"success", `{"language":"python","code":"print(1)"}`, 4, "python", "success", "", 200},
	{"slow success", `{"language":"python","code":"import time; time.sleep(0.4)"}`, 1, "python", "success", "", 200},
	{"bash", `{"language":"bash","code":"echo hi"}`, 2, "bash", "success", "", 200},
	{"command", `{"command":["true"]}`, 1, "command", "success", "", 200},
	{"exception", `{"language":"python","code":"1/0"}`, 3, "python", "error", "", 200},
	{"exit code", `{"command":["sh","-c","exit 7"]}`, 1, "command", "error", "", 200},
	{"timeout", `{"language":"python","code":"while True: pass","timeout_ms":400}`, 2, "python", "timeout", "SB005", 200},
	{"memory", `{"language":"python","code":"x = bytearray(10**9)","limits":{"memory":67108864}}`, 1, "python", "out_of_memory", "SB006", 200},
	{"policy", `{"language":"python","code":"eval('1')"}`, 2, "python", "blocked", "SB007", 403},
	{"no such user", `{"language":"python","code":"print(1)","user":"nobody"}`, 1, "python", "refused", "SB010", 400},
	{"no image", `{"language":"python","code":"print(1)","image":"nosuch"}`, 1, "python", "refused", "SB010", 400},
	{"broken typescript", `{"language":"typescript","code":"const = ;"}`, 1, "typescript", "error", "", 200},
}

// TestMetricsMatchWorkload verifies that each metric matches a known workload on real sandboxes.
//
//suite:part core
func TestMetricsMatchWorkload(t *testing.T) {
	s := startServer(t, t.TempDir(), "--config", writeConfig(t, `
pool: {size: 1}
region: test-1
screening: {mode: deny, python: {calls: [eval], imports: [subprocess]}, others: true}
rates: {gvisor: {per_call: 1, per_second: 2, per_gib_second: 4}}
metrics: {trial: 1s}
alerts: {every: 500ms}
`))
	day := brig.DayOf(time.Now())
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the server's log: %s", s.errs)
		}
	})
	before := s.scrape()
	lines, answers := 0, map[int]int{}
	for _, w := range workload {
		for range w.n {
			lines++
			answers[w.http]++
			if status, body := s.do("POST", "/v1/run", w.body); status != w.http || w.code != "" && !strings.Contains(body, w.code) {
				t.Errorf("%s: %d %s", w.name, status, body)
			}
		}
	}
	// Create a tenant that may run one program per day.
	svc := s.client()
	if _, err := svc.CreateTenant(t.Context(), brig.Tenant{Name: "small", Quota: brig.Quota{ExecutionsPerDay: 1}, Budget: 100}); err != nil {
		t.Fatal(err)
	}
	key, err := svc.CreateKey(t.Context(), brig.KeySpec{Name: "k", Tenant: "small", Role: brig.Member})
	if err != nil {
		t.Fatal(err)
	}
	small := *s
	small.key = key.Secret
	for i, want := range []int{200, 429} {
		lines++
		answers[want]++
		if status, body := small.do("POST", "/v1/run", `{"command":["true"]}`); status != want {
			t.Errorf("run %d of the small tenant: %d %s", i, status, body)
		}
	}
	m := s.scrape()
	for _, w := range workload {
		want := 0
		for _, o := range workload {
			if o.language == w.language && o.status == w.status && o.code == w.code {
				want += o.n
			}
		}
		if w.language == "command" && w.status == "success" {
			want++ // the program of tenant small
		}
		got := m.sum("brig_executions_total", `operation="run"`, fmt.Sprintf("language=%q", w.language), fmt.Sprintf("status=%q", w.status), fmt.Sprintf("code=%q", w.code))
		if got != float64(want) {
			t.Errorf("%s: brig_executions_total says %v, want %d", w.name, got, want)
		}
	}
	if got := m.sum("brig_executions_total", `code="SB008"`, `status="refused"`); got != 1 {
		t.Errorf("%v executions beyond the quota, want 1", got)
	}
	all := m.sum("brig_executions_total")
	if all != float64(lines) {
		t.Errorf("%v executions, want %d", all, lines)
	}
	ran, good, erred := 17.0, 9.0, 3.0                                                   // the totals of the table, plus the program of the tenant small
	if got := m.sum("brig_execution_seconds_count", `provider="gvisor"`); got != ran-1 { // invalid TypeScript never reaches a provider
		t.Errorf("%v executions have a duration, want %v", got, ran-1)
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-9 {
			t.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	near("mean", m.sum("brig_execution_mean_seconds", `provider="gvisor"`), m.sum("brig_execution_seconds_sum")/(ran-1))
	near("success", m.sum("brig_execution_success_ratio", `provider="gvisor"`), good/(ran-1))
	near("error rate", m.sum("brig_execution_error_ratio", `provider="gvisor"`), erred/(ran-1))
	near("availability", m.sum("brig_availability_ratio", `provider="gvisor"`), 1)
	near("failed attempts", m.sum("brig_attempts_total", `result="failed"`), 0)
	near("blocked operations", m.sum("brig_errors_total", `operation="run"`, `code="SB007"`, `kind="blocked_by_policy"`), 2)
	near("invalid operations", m.sum("brig_errors_total", `operation="run"`, `code="SB010"`), 2)
	near("refused by quota", m.sum("brig_errors_total", `operation="run"`, `code="SB008"`), 1)
	near("executions that go on", m.sum("brig_executions_active"), 0)
	near("callers that wait", m.sum("brig_queue_depth"), 0)
	if hits, misses := m.sum("brig_pool_hits_total"), m.sum("brig_pool_misses_total"); hits+misses != ran-1 || hits < 1 || misses < 4 {
		t.Errorf("%v hits and %v misses, want %v together", hits, misses, ran-1)
	}
	claims, made := m.sum("brig_sandbox_create_seconds_count", `for="claim"`), m.sum("brig_sandbox_create_seconds_count", `for="caller"`)
	if claims != m.sum("brig_pool_hits_total") || made != m.sum("brig_pool_misses_total") {
		t.Errorf("%v claims and %v made for callers", claims, made)
	}
	if m.sum("brig_sandbox_create_seconds_count", `for="pool"`) < 1 || m.sum("brig_sandbox_create_seconds_sum", `for="caller"`) <= 0 {
		t.Error("the making of sandboxes has no times")
	}
	// The expected cost consists of each call, its duration, and its duration times its memory:
	// half a GiB, or 64 MiB for the program that requested less.
	seconds := m.sum("brig_execution_seconds_sum")
	cost := m.sum("brig_cost_total", `provider="gvisor"`)
	if least, maximum := ran-1+2.2*seconds, ran-1+4*seconds+1e-6; cost < least || cost > maximum {
		t.Errorf("cost is %v for %v executions of %v s, want %v to %v", cost, ran-1, seconds, least, maximum)
	}
	lines1, err := svc.TenantUsage(t.Context(), brig.UsageQuery{Tenant: brig.AllTenants})
	if err != nil {
		t.Fatal(err)
	}
	used := 0.0
	for _, l := range lines1 {
		used += l.Cost
	}
	if math.Abs(used-cost) > 1e-6 {
		t.Errorf("the usage says %v, the metric %v", used, cost)
	}
	s.apiMetrics(t, answers)
	s.liveMetrics(t)
	s.hostMetrics(t, before)
	s.fixedMetrics(t)
	s.healthCheckMetrics(t)
	s.queueMetrics(t)
	s.poolMetrics(t)
	s.costMetrics(t, day)
	s.everyMetric(t)
	checkWithPromtool(t, s)
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	checkLines(t, s.errs.Bytes(), lines)
	checkTimes(t, s.errs.Bytes(), m)
}

// checkTimes compares the durations in the metrics with those in the log, so it does not depend
// on the speed of the machine.
func checkTimes(t *testing.T, log []byte, m scrape) {
	t.Helper()
	var all, python []float64 // milliseconds, rounded down
	for line := range bytes.Lines(log) {
		var l struct {
			Msg, Operation, Provider, Language string
			MS                                 float64 `json:"duration_ms"`
		}
		if json.Unmarshal(line, &l) != nil || l.Msg != "run" || l.Operation != "run" || l.Provider != "gvisor" {
			continue
		}
		if all = append(all, l.MS); l.Language == "python" {
			python = append(python, l.MS)
		}
	}
	n := len(all)
	if n < 10 || float64(n) != m.sum("brig_execution_seconds_count", `provider="gvisor"`) {
		t.Fatalf("the log has %d executions, the metric says %v", n, m.sum("brig_execution_seconds_count", `provider="gvisor"`))
	}
	slices.Sort(all)
	least := 0.0
	for _, ms := range all {
		least += ms / 1000
	}
	if sum := m.sum("brig_execution_seconds_sum"); sum < least-0.001 || sum > least+0.001*float64(n+1) {
		t.Errorf("all executions together took %v s, and by the log %v s", sum, least)
	}
	for _, le := range []float64{0.25, 0.5, 1, 10} {
		var sure, possible float64
		for _, ms := range python {
			if ms+1 <= le*1000 {
				sure++
			}
			if ms <= le*1000 {
				possible++
			}
		}
		if got := m.sum("brig_execution_seconds_bucket", `language="python"`, fmt.Sprintf(`le="%g"`, le)); got < sure || got > possible {
			t.Errorf("%v executions in Python took %v s or less, and by the log %v to %v", got, le, sure, possible)
		}
	}
	for percentile, q := range map[string]float64{"50": 0.5, "95": 0.95, "99": 0.99} {
		want := all[int(math.Ceil(q*float64(n)))-1] / 1000
		// The percentiles come from histogram buckets whose bounds grow by 5 %.
		if v := m.sum("brig_execution_percentile_seconds", `provider="gvisor"`, fmt.Sprintf("percentile=%q", percentile)); v < want*0.95 || v > (want+0.001)*1.05 {
			t.Errorf("percentile %s is %v, want %v as in the log", percentile, v, want)
		}
	}
}

// liveMetrics verifies the metrics of running executions and of a persistent sandbox.
func (s *server) liveMetrics(t *testing.T) {
	t.Helper()
	svc := s.client()
	if _, err := svc.Create(t.Context(), brig.Spec{Name: "stays"}); err != nil {
		t.Fatal(err)
	}
	for code, want := range map[string]string{"1+1": "success", "1/0": "error"} {
		if _, err := svc.RunCode(t.Context(), "stays", brig.Code{Source: code}, nil); err != nil {
			t.Fatalf("%s (%s): %v", code, want, err)
		}
	}
	// The first code ends the interpreter, and the second runs in a new one.
	for _, code := range []string{"import os; os._exit(3)", "1"} {
		if _, err := svc.RunCode(t.Context(), "stays", brig.Code{Source: code}, nil); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	go func() {
		_, err := svc.Exec(t.Context(), "stays", brig.Command{Shell: "until [ -e /workspace/seen ]; do sleep 0.1; done"}, brig.IO{})
		done <- err
	}()
	deadline := time.Now().Add(promptTimeout)
	for m := s.scrape(); ; m = s.scrape() {
		if m.sum("brig_executions_active", `provider="gvisor"`) == 1 {
			if m.sum("brig_sandboxes_active", `provider="gvisor"`) != 1 {
				t.Errorf("one sandbox lives, the metric says %v", m.sum("brig_sandboxes_active"))
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("brig_executions_active never says that the command runs")
		}
		time.Sleep(20 * time.Millisecond)
	}
	if _, err := svc.Files("stays").Write(t.Context(), brig.Path{Name: "/workspace/seen"}, brig.FileWrite{}, strings.NewReader("")); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if _, err := svc.Kill(t.Context(), "stays"); err != nil {
		t.Fatal(err)
	}
	m := s.scrape()
	for _, c := range []struct {
		metric string
		want   float64
		labels []string
	}{
		{"brig_executions_total", 2, []string{`operation="context.run"`, `language="python"`, `status="success"`}},
		{"brig_executions_total", 2, []string{`operation="context.run"`, `language="python"`, `status="error"`}},
		{"brig_executions_total", 1, []string{`operation="sandbox.exec"`, `status="success"`}},
		{"brig_restarts_total", 1, []string{`what="interpreter"`}},
		{"brig_sandboxes_ended_total", 1, []string{`reason="killed"`}},
		{"brig_executions_active", 0, nil},
		{"brig_sandboxes_active", 0, nil},
	} {
		if got := m.sum(c.metric, c.labels...); got != c.want {
			t.Errorf("%s%v is %v, want %v", c.metric, c.labels, got, c.want)
		}
	}
}

// hostMetrics compares the metrics of the host with /proc.
func (s *server) hostMetrics(t *testing.T, before scrape) {
	t.Helper()
	m := s.scrape()
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	var kib float64
	if _, err := fmt.Sscanf(string(b), "MemTotal: %f kB", &kib); err != nil {
		t.Fatal(err)
	}
	if got := m.sum("brig_host_memory_bytes", `what="total"`); got != kib*1024 {
		t.Errorf("the machine has %v bytes of memory, /proc/meminfo says %v", got, kib*1024)
	}
	if m.sum("brig_host_cpu_seconds_total", `mode="busy"`) <= before.sum("brig_host_cpu_seconds_total", `mode="busy"`) {
		t.Error("the processors did nothing all the while")
	}
	for _, metric := range []string{"brig_host_memory_used_ratio", "brig_host_disk_used_ratio", "brig_host_cpu_used_ratio"} {
		if v := m.sum(metric); v <= 0 || v > 1 {
			t.Errorf("%s is %v", metric, v)
		}
	}
	if up := m.sum("brig_uptime_seconds"); up <= before.sum("brig_uptime_seconds") || up > 600 {
		t.Errorf("the server is up for %v s, and was for %v", up, before.sum("brig_uptime_seconds"))
	}
}

// healthCheckMetrics waits for a health check, which creates a real sandbox, and verifies its
// metrics.
func (s *server) healthCheckMetrics(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(2 * promptTimeout); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		m := s.scrape()
		if m.sum("brig_trials_total", `provider="gvisor"`, `result="ok"`) > 0 {
			if m.sum("brig_provider_up") != 1 || m.sum("brig_trial_seconds") <= 0 || m.sum("brig_sandbox_create_seconds_count", `for="trial"`) < 1 {
				t.Errorf("a trial succeeded: up is %v, it took %v s", m.sum("brig_provider_up"), m.sum("brig_trial_seconds"))
			}
			if m.sum("brig_trials_total", `result="failed"`) != 0 {
				t.Error("a trial failed")
			}
			return
		}
	}
	t.Error("there was no trial")
}

// promtool returns the path of Prometheus's promtool.
func promtool(t testing.TB) string {
	t.Helper()
	for _, file := range []string{os.Getenv("BRIG_PROMTOOL"), "promtool", "/var/cache/brig-test/promtool"} {
		if file == "" {
			continue
		}
		if found, err := exec.LookPath(file); err == nil {
			return found
		}
	}
	t.Skip("no promtool here; `make setup` gets one")
	return ""
}

// checkWithPromtool validates the metrics page with promtool.
func checkWithPromtool(t *testing.T, s *server) {
	t.Helper()
	_, page := s.do("GET", "/metrics", "")
	t.Run("promtool", func(t *testing.T) {
		cmd := exec.Command(promtool(t), "check", "metrics")
		cmd.Stdin = strings.NewReader(page)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool check metrics: %v\n%s", err, out)
		}
	})
}

// checkLines verifies that the log contains one line with the twelve fields for each execution,
// and no program code.
func checkLines(t *testing.T, log []byte, runs int) {
	t.Helper()
	found := map[string]int{}
	n := 0
	for sc := bufio.NewScanner(bytes.NewReader(log)); sc.Scan(); {
		var l map[string]any
		if err := json.Unmarshal(sc.Bytes(), &l); err != nil {
			t.Errorf("not JSON: %s", sc.Bytes())
			continue
		}
		if l["msg"] != "run" {
			continue
		}
		for _, f := range []string{"timestamp", "tenant_id", "provider", "operation", "instance_id", "language", "code_hash", "duration_ms", "status", "exit_code", "memory_used_mb", "region"} {
			if _, ok := l[f]; !ok {
				t.Errorf("a line has no %s: %s", f, sc.Bytes())
			}
		}
		if l["region"] != "test-1" {
			t.Errorf("region is %v", l["region"])
		}
		if at, err := time.Parse(time.RFC3339, fmt.Sprint(l["timestamp"])); err != nil || time.Since(at) > 10*time.Minute {
			t.Errorf("timestamp is %v", l["timestamp"])
		}
		if l["operation"] == "run" {
			n++
			found[fmt.Sprint(l["status"], " ", l["code_hash"])]++
		}
	}
	if n != runs {
		t.Errorf("%d lines of runs, want %d", n, runs)
	}
	for code, want := range map[string]struct {
		status string
		n      int
	}{"print(1)": {"success", 4}, "1/0": {"error", 3}, "while True: pass": {"timeout", 2}, "x = bytearray(10**9)": {"out_of_memory", 1}, "eval('1')": {"blocked", 2}, "sh -c exit 7": {"error", 1}} {
		sum := sha256.Sum256([]byte(code))
		if got := found[want.status+" sha256:"+hex.EncodeToString(sum[:])]; got != want.n {
			t.Errorf("%d lines say that %q went as %s, want %d", got, code, want.status, want.n)
		}
	}
	for _, word := range []string{"bytearray", "while True", "eval("} {
		if bytes.Contains(log, []byte(word)) {
			t.Errorf("the log has code in it: %q", word)
		}
	}
}
