package suite

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestDiscoverFileReadsDirectives(t *testing.T) {
	for _, c := range []struct {
		name, src string
		want      Test
		wrong     string
	}{
		{"part", "//suite:part core\nfunc TestA(t *testing.T) {}", Test{Name: "TestA", File: "e2e/x_test.go", Part: "core"}, ""},
		{"words", "// TestA tries.\n//\n//suite:part hostile full alone waits with=x\nfunc TestA(t *testing.T) {}", Test{"TestA", "e2e/x_test.go", "hostile", true, true, true, "x"}, ""},
		{"fuzz", "//suite:part core\nfunc FuzzA(f *testing.F) {}", Test{Name: "FuzzA", File: "e2e/x_test.go", Part: "core"}, ""},
		{"no directive", "// TestA tries.\nfunc TestA(t *testing.T) {}", Test{}, "e2e/x_test.go: TestA: the test names no part"},
		{"no part", "//suite:part\nfunc TestA(t *testing.T) {}", Test{}, "names no part"},
		{"unknown part", "//suite:part elsewhere\nfunc TestA(t *testing.T) {}", Test{}, `no part is named "elsewhere"`},
		{"part of packages", "//suite:part packages\nfunc TestA(t *testing.T) {}", Test{}, "takes no end-to-end tests"},
		{"unknown word", "//suite:part core slow\nfunc TestA(t *testing.T) {}", Test{}, `"slow" is not a word`},
		{"no test", "func Testing() {}\n\nfunc TestMain(m *testing.M) {}\n\nfunc (x) TestB(t *testing.T) {}", Test{}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			tests, err := discoverFile("e2e/x_test.go", []byte("package e2e\n\n"+c.src+"\n"))
			if c.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), c.wrong) {
					t.Fatalf("error %v, want %q", err, c.wrong)
				}
				return
			}
			if err != nil || len(tests) > 1 || len(tests) == 1 && tests[0] != c.want || len(tests) == 0 && c.want.Name != "" {
				t.Errorf("%+v, %v, want %+v", tests, err, c.want)
			}
		})
	}
}

func TestPartsForSelectsPartsOfFiles(t *testing.T) {
	tests := []Test{{Name: "TestA", File: "e2e/a_test.go", Part: "docker"}, {Name: "TestB", File: "e2e/a_test.go", Part: "egress"}}
	for file, want := range map[string]string{
		"provider/docker/docker.go": "docker",
		"egress/rules.go":           "egress race",
		"api/e2b/control.go":        "clients",
		"ui/src/App.tsx":            "console",
		"sdk/python/src/x.py":       "clients",
		"workspace/store.go":        "workspaces race",
		"chaos/run.go":              "crash",
		"provider/e2b/api.go":       "providers",
		"docs/guides/user.md":       "install",
		"docs/performance.md":       "",
		"quota.go":                  "core race",
		"e2e/a_test.go":             "egress docker",
		"e2e/harness_test.go":       "",
		"new/thing.go":              strings.Join(partNames(), " "),
	} {
		names, reasons := PartsFor([]string{"SECURITY.md", file}, tests)
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s asks for %q, want %q", file, got, want)
		}
		for _, n := range names {
			if reasons[n] != file {
				t.Errorf("%s is selected by %q, want %q", n, reasons[n], file)
			}
		}
	}
}

// TestPartsToRunSelectsChangedParts checks that parts are selected according to the files that
// changed since each part last passed.
func TestPartsToRunSelectsChangedParts(t *testing.T) {
	g := PassRecords{Parts: map[string]PassRecord{}}
	for _, name := range partNames() {
		g.Parts[name] = PassRecord{Commit: "new"}
	}
	g.Parts["egress"], g.Parts["docker"] = PassRecord{Commit: "old"}, PassRecord{Commit: "old"}
	g.Parts["install"] = PassRecord{Commit: "lost"}
	delete(g.Parts, "console")
	changed := map[string][]string{"new": {"workspace/store.go"}, "old": {"egress/rules.go", "workspace/store.go"}}
	names, reasons := g.PartsToRun(nil, func(commit string) ([]string, error) {
		if files, ok := changed[commit]; ok {
			return files, nil
		}
		return nil, errors.New("the commit is not in this checkout")
	})
	if got := strings.Join(names, " "); got != "egress workspaces console install race" {
		t.Errorf("selected parts: %s", got)
	}
	want := map[string]string{
		"egress": "egress/rules.go", "workspaces": "workspace/store.go", "race": "workspace/store.go",
		"console": "no record of it in green.json", "install": "the commit is not in this checkout",
	}
	if !maps.Equal(reasons, want) {
		t.Errorf("why: %v, want %v", reasons, want)
	}
}

// TestRotationChangesWeekly checks that the rotation changes only with the ISO week.
func TestRotationChangesWeekly(t *testing.T) {
	monday := time.Date(2026, 12, 28, 0, 0, 0, 0, time.UTC) // week 53
	last := ""
	for day := range 21 {
		now := monday.AddDate(0, 0, day)
		_, week := now.ISOWeek()
		_, before := now.AddDate(0, 0, -1).ISOWeek()
		got := Rotation(now.Add(23 * time.Hour))
		if got != Rotation(now) || last != "" && (got != last) != (week != before) {
			t.Errorf("%s: %s, after %s", now.Format(time.DateOnly), got, last)
		}
		last = got
	}
}

func TestQuarantineRejectsInvalidLines(t *testing.T) {
	list, err := ReadQuarantine("# a comment\n\nTestA 2026-11-23 the port is taken now and then\n")
	if err != nil || len(list) != 1 || list[0].Test != "TestA" || list[0].Reason != "the port is taken now and then" {
		t.Fatalf("%+v, %v", list, err)
	}
	for _, wrong := range []string{"TestA", "TestA 2026-11-23", "TestA yesterday a reason"} {
		if _, err := ReadQuarantine(wrong); err == nil {
			t.Errorf("%q is accepted", wrong)
		}
	}
	kept, out, err := Split([]Test{{Name: "TestA"}, {Name: "TestB"}}, list)
	if err != nil || len(kept) != 1 || kept[0].Name != "TestB" || len(out) != 1 || out[0].Name != "TestA" {
		t.Errorf("kept %v, out %v, %v", kept, out, err)
	}
	if _, _, err := Split(nil, list); err == nil {
		t.Error("a test that does not exist is accepted")
	}
}

func TestPatternQuotesNames(t *testing.T) {
	if got := testPattern("TestA/b.c/d"); got != `^TestA$/^b\.c$/^d$` {
		t.Errorf("pattern %s", got)
	}
}

func TestStagesSeparateExclusiveJobs(t *testing.T) {
	stages := groupStages([]Job{{Name: "a1", Part: "a", Alone: true}, {Name: "a2", Part: "a"}, {Name: "b1", Part: "b"}, {Name: "a3", Part: "a"}, {Name: "b2", Part: "b", Alone: true}})
	var got []string
	for _, s := range stages {
		var names []string
		for _, j := range s {
			names = append(names, j.Name)
		}
		got = append(got, strings.Join(names, "+"))
	}
	if s := strings.Join(got, " "); s != "a2+a3 a1 b1 b2" {
		t.Errorf("stages %s", s)
	}
}

// shell returns a job that runs a script, which prints events.
func shell(name, script string) Job {
	return Job{Name: name, Part: "part", Argv: []string{"sh", "-c", script}, Limit: time.Minute, Again: "make test"}
}

const (
	passing = `printf '%s\n' '{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN\n"}'; printf '%s\n' '{"Action":"pass","Package":"p","Test":"TestA","Elapsed":1.5}'; printf '%s\n' '{"Action":"pass","Package":"p"}'`
	failing = `printf '%s\n' '{"Action":"output","Package":"p","Test":"TestB/x","Output":"it is wrong\n"}'; printf '%s\n' '{"Action":"fail","Package":"p","Test":"TestB/x"}'; printf '%s\n' '{"Action":"fail","Package":"p","Test":"TestB"}'; printf '%s\n' '{"Action":"fail","Package":"p"}'; exit 1`
)

// TestFailedJobFailsRun checks that any kind of failed job makes the run fail, with the
// reason and the command to repeat it.
func TestFailedJobFailsRun(t *testing.T) {
	for _, c := range []struct {
		name   string
		jobs   []Job
		ok     bool
		totals string
		says   []string
	}{
		{"pass", []Job{shell("TestA", passing)}, true, "1 passed, 0 failed, 0 skipped", []string{"1.5s  p TestA"}},
		{"fail", []Job{shell("TestA", passing), shell("TestB", failing)}, false, "1 passed, 2 failed, 0 skipped", []string{"--- FAIL: TestB TestB/x\nit is wrong\n", "repeat: make test RUN='TestB/x'"}},
		{"skip", []Job{shell("TestA", passing), shell("TestC", `printf '%s\n' '{"Action":"output","Package":"p","Test":"TestC","Output":"    x.go:1: no browser\n"}'; printf '%s\n' '{"Action":"skip","Package":"p","Test":"TestC"}'`)}, true, "1 passed, 0 failed, 1 skipped", []string{"p TestC: x.go:1: no browser"}},
		{"build failure", []Job{shell("TestA", passing), shell("packages", `printf '%s\n' '{"ImportPath":"q","Action":"build-output","Output":"syntax error\n"}'; printf '%s\n' '{"ImportPath":"q","Action":"build-fail"}'; printf '%s\n' '{"Action":"fail","Package":"q","FailedBuild":"q"}'; exit 1`)}, false, "1 passed, 1 failed, 0 skipped", []string{"build of q)\nsyntax error"}},
		{"dies", []Job{shell("TestA", passing), shell("TestD", `printf '%s\n' '{"Action":"output","Package":"p","Test":"TestD","Output":"panic: oh\n"}'; exit 2`)}, false, "1 passed, 1 failed, 0 skipped", []string{"exit status 2\npanic: oh"}},
		{"killed after passing", []Job{shell("TestA", passing+"; kill -9 $$")}, false, "1 passed, 1 failed, 0 skipped", []string{"signal: killed"}},
		{"package fails outside its tests", []Job{shell("TestA", passing), shell("packages", `printf '%s\n' '{"Action":"output","Package":"q","Output":"exit in TestMain\n"}'; printf '%s\n' '{"Action":"fail","Package":"q"}'; exit 1`)}, false, "1 passed, 1 failed, 0 skipped", []string{"exit in TestMain"}},
		{"no program", []Job{{Name: "x", Part: "part", Argv: []string{"/nowhere/x"}, Limit: time.Minute}}, false, "0 passed, 1 failed, 0 skipped", []string{"/nowhere/x"}},
		{"nothing ran", []Job{shell("x", "true")}, false, "0 passed, 0 failed, 0 skipped", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			r := &Runner{Out: &out, Slots: 2, Times: newTimes()}
			f := r.Run(t.Context(), Plan{"plan", c.jobs})
			ok := r.Report(&out)
			if failed := !strings.Contains(c.totals, ", 0 failed"); ok != c.ok || f.Failed() != failed {
				t.Errorf("ok %v, failed %v, want %v and %v", ok, f.Failed(), c.ok, failed)
			}
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			if last := lines[len(lines)-1]; last != c.totals {
				t.Errorf("totals %q, want %q", last, c.totals)
			}
			for _, want := range c.says {
				if !strings.Contains(out.String(), want) {
					t.Errorf("the report has no %q:\n%s", want, &out)
				}
			}
		})
	}
}

// TestRunEndsJobsThatHang verifies that a hanging job is killed with its child processes,
// and counts as failed.
func TestRunEndsJobsThatHang(t *testing.T) {
	dir := t.TempDir()
	j := shell("TestHang", "sleep 600 & echo $! > "+dir+"/child; wait")
	j.Limit = 200 * time.Millisecond
	var out bytes.Buffer
	r := &Runner{Out: &out, Slots: 1, Times: newTimes()}
	r.Run(t.Context(), Plan{"plan", []Job{j}})
	if r.Report(&out) || !strings.Contains(out.String(), "the job took more than 200ms") {
		t.Errorf("it is not reported:\n%s", &out)
	}
	pid, err := os.ReadFile(filepath.Join(dir, "child"))
	if err != nil {
		t.Fatal(err)
	}
	stat := "/proc/" + strings.TrimSpace(string(pid)) + "/stat"
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if b, err := os.ReadFile(stat); err != nil || bytes.Contains(b, []byte(") Z ")) {
			return
		}
		if time.Now().After(end) {
			t.Fatal("what it started goes on")
		}
	}
}

// TestFirstFailureEndsConcurrentJobs verifies that the first failure ends the concurrent jobs, and
// that the ended jobs are not counted.
func TestFirstFailureEndsConcurrentJobs(t *testing.T) {
	dir := t.TempDir()
	var out bytes.Buffer
	r := &Runner{Out: &out, Slots: 2, FailFast: true, Times: newTimes()}
	r.Run(t.Context(), Plan{"plan", []Job{
		shell("TestA", `printf '%s\n' '{"Action":"fail","Package":"p","Test":"TestA"}'; exit 1`),
		shell("TestB", "sleep 600"),
		shell("TestC", "touch "+dir+"/ran"),
	}})
	if r.Report(&out) || len(r.Failures()) != 1 || r.Failures()[0].Test != "TestA" {
		t.Errorf("failures %+v", r.Failures())
	}
	if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
		t.Error("a job began after the failure")
	}
}

// TestRunStopsAfterInterrupt checks that no job starts after an interrupt.
func TestRunStopsAfterInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	r := &Runner{Out: &bytes.Buffer{}, Slots: 1, Times: newTimes()}
	r.Run(ctx, Plan{"plan", []Job{shell("TestA", "touch "+dir+"/ran")}})
	if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
		t.Error("a job began after the interrupt")
	}
	if r.Times.Plans["plan"] != 0 {
		t.Error("the time of an interrupted plan is kept")
	}
}

// TestSlotsLimitConcurrentJobs checks that jobs run concurrently up to the number of slots, and
// that jobs marked as alone run alone.
func TestSlotsLimitConcurrentJobs(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/now", 0o700); err != nil {
		t.Fatal(err)
	}
	script := `touch ` + dir + `/now/$$; sleep 0.2; ls ` + dir + `/now | wc -l >> ` + dir + `/seen-$0; sleep 0.2; rm ` + dir + `/now/$$; ` + passing
	var jobs []Job
	for range 4 {
		j := shell("many", script)
		j.Argv = append(j.Argv, "many")
		jobs = append(jobs, j)
	}
	alone := shell("alone", script)
	alone.Argv, alone.Alone = append(alone.Argv, "alone"), true
	r := &Runner{Out: &bytes.Buffer{}, Slots: 2, Times: newTimes()}
	r.Run(t.Context(), Plan{"plan", append(jobs, alone)})
	if b, _ := os.ReadFile(dir + "/seen-alone"); string(b) != "1\n" {
		t.Errorf("the job that must be alone saw %q", b)
	}
	if b, _ := os.ReadFile(dir + "/seen-many"); !strings.Contains(string(b), "2") || strings.Contains(string(b), "3") {
		t.Errorf("the others saw %q", b)
	}
}

// TestStageStartsDuringLastPackages verifies that the next stage starts while the last packages of
// a job still run, unless the next job must run alone. Each part counts its own tests.
func TestStageStartsDuringLastPackages(t *testing.T) {
	dir := t.TempDir()
	packages := shell("packages", `printf '%s\n' '{"Action":"pass","Package":"m/a"}'; until [ -e `+dir+`/beside ]; do sleep 0.01; done; sleep 0.2; touch `+dir+`/ended; `+passing)
	packages.Alone, packages.packages, packages.Limit = true, 1+packagesWithRoom, 10*time.Second
	beside := shell("beside", "touch "+dir+"/beside; "+passing)
	alone := shell("alone", "ls "+dir+" > "+dir+"/seen; "+passing)
	packages.Part, beside.Part, alone.Part, alone.Alone = "packages", "next", "next", true
	r := &Runner{Out: &bytes.Buffer{}, Slots: 1, Times: newTimes()}
	f := r.Run(t.Context(), Plan{"plan", []Job{packages, beside, alone}})
	if f.Failed() {
		t.Fatalf("the next stage did not begin: %+v", r.Failures())
	}
	if b, _ := os.ReadFile(dir + "/seen"); !strings.Contains(string(b), "ended") {
		t.Errorf("the job that must be alone saw %q", b)
	}
	if len(f.Parts) != 2 || f.Parts[0].passed != 1 || f.Parts[1].passed != 2 || f.passed != 3 {
		t.Errorf("the parts have %+v", f.Parts)
	}
}

// TestWaitingJobRunsBesideFullSlots verifies that a waiting job runs while other jobs occupy all
// slots.
func TestWaitingJobRunsBesideFullSlots(t *testing.T) {
	dir := t.TempDir()
	busy := shell("busy", "until [ -e "+dir+"/began ]; do sleep 0.01; done; "+passing)
	busy.Limit = 10 * time.Second
	waits := shell("waits", "touch "+dir+"/began; "+passing)
	waits.Waits = true
	r := &Runner{Out: &bytes.Buffer{}, Slots: 1, Times: newTimes()}
	if f := r.Run(t.Context(), Plan{"plan", []Job{busy, waits}}); f.Failed() {
		t.Errorf("the job that waits did not begin: %+v", r.Failures())
	}
}

// TestLongestPackagesRunFirst verifies that the slowest packages start first, and that only the
// recorded times of the same job are used.
func TestLongestPackagesRunFirst(t *testing.T) {
	tree := &Tree{}
	o := Options{Took: map[string]float64{"race detector: m/c": 9, "race detector: m/b": 7, "packages: m/a": 50}}
	j := tree.goTestJob("packages, race detector", detectorPart, true, o, []string{"m/a", "m/b", "m/c"})
	if got := strings.Join(j.Argv[len(j.Argv)-3:], " "); got != "m/c m/b m/a" {
		t.Errorf("the packages run as %s", got)
	}
	var out bytes.Buffer
	r := &Runner{Out: &out, Slots: 1, Times: newTimes()}
	timed := shell("packages", `printf '%s\n' '{"Action":"pass","Package":"m/c","Elapsed":4.5}' '{"Action":"pass","Package":"m/b","Elapsed":0.1}' '{"Action":"pass","Package":"e2e","Elapsed":30}'; `+passing)
	r.Run(t.Context(), Plan{"plan", []Job{timed}})
	if took := r.Times.Jobs; took["part: m/c"] != 4.5 || len(took) != 2 { // and the duration of the job
		t.Errorf("recorded: %v", took)
	}
	// A part that runs a package both with and without the detector records both times.
	with, without := tree.goTestJob("packages", "packages", true, o, nil), tree.goTestJob("packages without the detector", "packages", false, o, nil)
	for j, took := range map[*Job]string{&with: "4.5", &without: "3.5"} {
		j.Argv, j.Dir = []string{"sh", "-c", `printf '%s\n' '{"Action":"pass","Package":"m/c","Elapsed":` + took + `}'; ` + passing}, ""
	}
	r.Run(t.Context(), Plan{"plan", []Job{with, without}})
	if took := r.Times.Jobs; took["packages, raced: m/c"] != 4.5 || took["packages: m/c"] != 3.5 {
		t.Errorf("recorded: %v", took)
	}
}

// TestRecordedTimesAreRead verifies that a job uses every package time in this checkout's
// record. If a key changed, the packages would start in alphabetical order.
func TestRecordedTimesAreRead(t *testing.T) {
	g, err := ReadPassRecords("../../.ci/green.json")
	if err != nil {
		t.Fatal(err)
	}
	const module = "github.com/brig-run/brig"
	tree := &Tree{}
	jobs := []Job{
		tree.goTestJob("", "packages", false, Options{}, nil),
		tree.goTestJob("", "packages", true, Options{}, nil),
		tree.goTestJob("", detectorPart, true, Options{}, nil),
	}
	found := 0
	for key := range g.Jobs {
		set, pkg, _ := strings.Cut(key, ": ")
		if !strings.HasPrefix(pkg, module) {
			continue // not the time of a package
		}
		if found++; !slices.ContainsFunc(jobs, func(j Job) bool { return packageKey(j.timed, pkg) == key }) {
			t.Errorf("no job reads the time of %s in %q", pkg, set)
		}
	}
	if found == 0 {
		t.Error("the record has no time of a package")
	}
}

func TestPassRecordsRoundTrip(t *testing.T) {
	file := filepath.Join(t.TempDir(), "green.json")
	if g, err := ReadPassRecords(file); err != nil || len(g.Parts) > 0 {
		t.Errorf("without a file: %+v, %v", g, err)
	}
	times := Times{map[string]float64{"core": 61.4}, map[string]float64{"core: TestA": 9.6, "core: TestB": 0.5}}
	if err := (PassRecords{Parts: map[string]PassRecord{"core": {Commit: "abc"}}, Times: times.PartTimes()}).Write(file); err != nil {
		t.Fatal(err)
	}
	g, err := ReadPassRecords(file)
	if err != nil || g.Parts["core"].Commit != "abc" || g.Plans["core"] != 61 || g.Jobs["core: TestA"] != 10 || len(g.Jobs) != 1 {
		t.Errorf("%+v, %v", g, err)
	}
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadPassRecords(file); err == nil {
		t.Error("half a record is accepted")
	}
}
