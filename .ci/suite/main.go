// Command suite runs Brig's tests. The Makefile calls it:
//
//	suite test      make test: every package, and the end-to-end tests at small size
//	suite all       make test-all: everything at full size, in parts
//	suite changed   make test-changed: the parts that the changed files affect
//	suite steady    make test-steady: make test again and again, beside busy loops
//	suite list      prints the part of each test
//
// In every mode, a failed test is run again, alone, after all other tests have ended.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/brig-run/brig/chaos"
	"github.com/brig-run/brig/internal/attack"
	"github.com/brig-run/brig/internal/race"
	"github.com/brig-run/brig/internal/suite"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	ok, err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "suite:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// session is one run of the command.
type session struct {
	tree       *suite.Tree
	tests      []suite.Test // excludes quarantined tests
	flakyTests []suite.Test // quarantined tests
	quarantine []suite.QuarantinedTest
	green      suite.PassRecords
	runDir     *chaos.RunDir
	newRunner  func() *suite.Runner
	runner     *suite.Runner
	options    suite.Options
	parts      []string // the parts that ran whole
	notes      []string
}

// A session reads and writes these files of the checkout.
const (
	greenFile = ".ci/green.json"
	timesFile = "bin/test-times.json"
)

func run(ctx context.Context, args []string) (green bool, err error) {
	if len(args) == 0 {
		return false, errors.New("usage: suite test|all|changed|steady|list [flags]")
	}
	flags := flag.NewFlagSet("suite "+args[0], flag.ContinueOnError)
	one := flags.String("run", "", "run one `test`, as TestName or TestName/subtest")
	part := flags.String("part", "", "of `suite all`: run these `parts` only, separated by |")
	slots := flags.Int("slots", 0, "how many end-to-end tests run side by side; default: four at small size, else three")
	slowest := flags.Int("slowest", 10, "how many tests the report names for their time")
	count := flags.Int("count", 0, "how often each test runs")
	failFast := flags.Bool("failfast", false, "end with the first failure, without a second look")
	runs := flags.Int("runs", 5, "of `suite steady`: how often make test runs")
	busy := flags.Int("busy", 2, "of `suite steady`: the number of busy loops beside it")
	if err := flags.Parse(args[1:]); err != nil {
		return false, err
	}
	if *one != "" && args[0] != "test" && args[0] != "all" {
		return false, fmt.Errorf("suite %s takes no -run", args[0])
	}
	if *slots == 0 {
		// At small size, a test uses a third of a CPU on average. At full size, and with the race
		// detector, a test uses more CPU time and memory.
		if *slots = 3; args[0] == "test" || args[0] == "steady" {
			*slots = 4
		}
	}
	s, err := newSession(*count)
	if err != nil {
		return false, err
	}
	if args[0] == "list" {
		return true, s.list()
	}
	if err := s.occupy(); err != nil {
		return false, err
	}
	defer s.leave() // in case of an error
	s.newRunner = func() *suite.Runner {
		return &suite.Runner{
			Out: os.Stdout, Times: suite.ReadTimes(timesFile, s.green), LedgerDir: filepath.Join(s.runDir.Path, "attacks"),
			SlowTests: *slowest, FailFast: *failFast, Slots: *slots,
		}
	}
	s.runner = s.newRunner()
	s.options.Took = s.runner.Times.Jobs
	whole := false
	switch args[0] {
	case "test":
		if *one != "" {
			err = s.runOne(ctx, *one)
		} else {
			err, whole = s.runSmall(ctx), true
		}
	case "all":
		err, whole = s.all(ctx, *part, *one), *part == "" && *one == ""
	case "changed":
		err = s.runChanged(ctx)
	case "steady":
		return s.runSteady(ctx, *runs, *busy)
	default:
		err = fmt.Errorf("no command %q; there are test, all, changed, steady and list", args[0])
	}
	if err != nil {
		return false, err
	}
	s.finish(ctx, whole)
	if *one == "" {
		s.must("write "+timesFile, s.runner.Times.Write(timesFile))
	}
	s.leave()
	if ctx.Err() != nil {
		fmt.Println("Interrupted.")
	}
	green = s.runner.Report(os.Stdout, s.notes...)
	return ctx.Err() == nil && (green || args[0] == "changed" && s.runner.HasNoTests()), nil
}

// must counts an error of the suite itself as a failure instead of returning it, so that the
// results of the tests are still reported.
func (s *session) must(what string, err error) {
	if err != nil {
		s.runner.Fail("suite", what, err.Error()+"\n")
	}
}

// newSession opens the checkout in the working directory.
func newSession(count int) (*session, error) {
	tree, err := suite.OpenTree(".")
	if err != nil {
		return nil, err
	}
	s := &session{tree: tree}
	if s.tests, s.flakyTests, s.quarantine, err = suite.Tests("."); err != nil {
		return nil, err
	}
	if s.green, err = suite.ReadPassRecords(greenFile); err != nil {
		return nil, err
	}
	s.options = suite.Options{Count: count, Detector: race.Options, Rotation: os.Getenv("ROTATION")}
	if s.options.Rotation == "" {
		s.options.Rotation = suite.Rotation(time.Now())
	}
	return s, nil
}

// occupy takes a directory for all temporary files of this run, and clears the directories of
// interrupted runs.
func (s *session) occupy() error {
	runDir, removed, err := chaos.LockRunDir(os.TempDir())
	if err == nil {
		s.runDir = runDir
		removed = append(removed, runDir.ClearShared()...)
	}
	for _, what := range removed {
		fmt.Println("Removed what an interrupted run left:", what)
	}
	if err != nil {
		return err
	}
	s.options.Races = filepath.Join(runDir.Path, "races")
	for _, dir := range []string{s.options.Races, filepath.Join(runDir.Path, "attacks")} {
		if err := os.Mkdir(dir, 0o777); err != nil {
			s.leave()
			return err
		}
	}
	return os.Setenv("TMPDIR", runDir.Path)
}

// leave removes the directory for temporary files. Resources that the tests did not remove become
// notes.
func (s *session) leave() {
	if s.runDir == nil { // already removed
		return
	}
	left, err := s.runDir.Release()
	s.runDir = nil
	for _, what := range left {
		s.notes = append(s.notes, "The tests left, and the suite removed: "+what)
	}
	if s.runner != nil {
		s.must("remove the folder of this run", err)
	}
}

// list prints the part of each test.
func (s *session) list() error {
	for _, t := range s.tests {
		size := "make test"
		if t.Full {
			size = "make test-all"
		}
		fmt.Printf("%-12s %-14s %s\n", t.Part, size, t.Name)
	}
	return nil
}

// isComplete reports whether the run was not stopped early.
func (s *session) isComplete(ctx context.Context) bool {
	return ctx.Err() == nil && !(s.runner.FailFast && len(s.runner.Failures()) > 0)
}

// runSmall runs make test.
func (s *session) runSmall(ctx context.Context) error {
	for _, q := range s.quarantine {
		s.notes = append(s.notes, fmt.Sprintf("left out since %s: %s: %s", q.Since.Format(time.DateOnly), q.Test, q.Reason))
	}
	fmt.Printf("Long lists of cases take the share of ROTATION=%s.\n", s.options.Rotation)
	plan, err := s.tree.Small(s.tests, s.options)
	if err != nil {
		return err
	}
	s.runner.Run(ctx, plan)
	return nil
}

// runOne runs one test.
func (s *session) runOne(ctx context.Context, one string) error {
	plan, err := s.tree.Only(one, s.tests, s.options)
	if err != nil {
		return err
	}
	s.runner.Run(ctx, plan)
	return nil
}

// all runs make test-all, or some of its parts.
func (s *session) all(ctx context.Context, parts, one string) error {
	s.options.Full = true
	if one != "" && parts != "race" {
		return s.runOne(ctx, one)
	}
	names := strings.FieldsFunc(parts, func(r rune) bool { return r == '|' || r == ',' || r == ' ' })
	if parts == "" {
		for _, p := range suite.Parts() {
			names = append(names, p.Name)
		}
	}
	for _, name := range names {
		if err := s.runPart(ctx, name, one); err != nil {
			return err
		}
	}
	if parts == "" && one == "" {
		s.flaky(ctx)
	}
	return nil
}

// runPart runs one part of make test-all.
func (s *session) runPart(ctx context.Context, name, one string) error {
	p, err := suite.PartNamed(name)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return nil
	}
	target := "test-programs"
	if p.Race {
		target = "race-programs"
	}
	if err := s.make(ctx, target); err != nil {
		return err
	}
	fmt.Printf("== %s: %s\n", p.Name, p.What)
	plan, err := s.tree.OfPart(p, s.tests, one, s.options)
	if err != nil {
		return err
	}
	f := s.runner.Run(ctx, plan)
	fmt.Printf("== %s took %s\n", p.Name, f.Duration.Round(time.Second))
	if err := s.countRaces(name); err != nil {
		return err
	}
	if one == "" && ctx.Err() == nil {
		s.parts = append(s.parts, name)
	}
	return nil
}

// finish runs failed tests again, checks the recorded attacks, and records the parts that passed.
// In a whole run, each class of attacks must have a case and a control.
func (s *session) finish(ctx context.Context, whole bool) {
	if len(s.runner.Failures()) > 0 {
		for _, what := range s.runDir.EndProcesses() {
			fmt.Println("== ended what failed tests left:", what)
		}
	}
	s.runner.RerunFailures(ctx)
	s.must("read the reports of races", s.countRaces("second look"))
	s.must("read the records of attacks", s.attacks(whole && s.isComplete(ctx)))
	// A failure that belongs to no part may have been caused by any part.
	failed := func(name string) bool {
		return slices.ContainsFunc(s.runner.Failures(), func(f suite.Failure) bool {
			return f.Part == name || !slices.Contains(s.parts, f.Part)
		})
	}
	if passed := slices.DeleteFunc(slices.Clone(s.parts), failed); len(passed) > 0 {
		s.must("record the parts", s.record(passed))
	}
}

// countRaces counts each report of the race detector as a failure of a part.
func (s *session) countRaces(part string) error {
	reports, err := filepath.Glob(filepath.Join(s.options.Races, "*"))
	if err != nil {
		return err
	}
	ofShims, err := filepath.Glob(race.Log + "*")
	if err != nil {
		return err
	}
	for _, name := range append(reports, ofShims...) {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		s.runner.Fail(part, "data race in "+filepath.Base(name), string(text))
		os.Remove(name)
	}
	return nil
}

// make builds the programs that tests need.
func (s *session) make(ctx context.Context, target string) error {
	cmd := exec.CommandContext(ctx, "make", "-s", target)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("make %s: %w", target, err)
	}
	return nil
}

// flaky runs the quarantined tests.
func (s *session) flaky(ctx context.Context) {
	if len(s.flakyTests) > 0 {
		s.runner.Run(ctx, s.tree.Quarantine(s.flakyTests, s.options))
	}
}

// attacks reports on the recorded attacks. In a complete run, each class of the
// catalogue must have a case and a control. Half of the attacks require root.
func (s *session) attacks(whole bool) error {
	book, err := s.runner.Ledger()
	if err != nil || book.IsEmpty() && !whole {
		return err
	}
	var table strings.Builder
	problems := book.Report(&table, attack.Catalogue(), whole && os.Getuid() == 0)
	if s.options.Full {
		fmt.Print(table.String())
	}
	lines := strings.Split(strings.TrimSpace(table.String()), "\n")
	s.notes = append(s.notes, "Attacks: "+lines[len(lines)-1])
	if len(problems) > 0 {
		s.runner.Fail("attacks", "the book of attacks", strings.Join(problems, "\n")+"\n")
	}
	return nil
}

// record records that parts passed at this commit.
func (s *session) record(parts []string) error {
	dirty, err := git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!"+greenFile)
	if err != nil {
		return err
	}
	names := strings.Join(parts, ", ")
	if dirty != "" {
		s.notes = append(s.notes, fmt.Sprintf("Passed and not recorded, because the checkout has uncommitted changes: %s.", names))
		return nil
	}
	commit, err := git("rev-parse", "HEAD")
	if err != nil {
		return err
	}
	for _, part := range parts {
		s.green.Parts[part] = suite.PassRecord{Commit: commit, Date: time.Now().UTC().Format(time.DateOnly)}
	}
	s.green.Times = s.runner.Times.PartTimes()
	s.notes = append(s.notes, fmt.Sprintf("Recorded as passed in %s, which you should commit: %s.", greenFile, names))
	return s.green.Write(greenFile)
}

// runChanged runs the parts affected by the changes since they last passed.
func (s *session) runChanged(ctx context.Context) error {
	names, reasons := s.green.PartsToRun(s.tests, changedSince)
	if len(names) == 0 {
		s.notes = append(s.notes, "No part runs: nothing that belongs to one changed since it passed.")
		return nil
	}
	s.options.Full = true
	for i, name := range names {
		if s.runner.FailFast && len(s.runner.Failures()) > 0 {
			s.notes = append(s.notes, "Left out after the first failure: "+strings.Join(names[i:], ", ")+".")
			break
		}
		fmt.Printf("== %s runs for %s\n", name, reasons[name])
		if err := s.runPart(ctx, name, ""); err != nil {
			return err
		}
	}
	var rest []string
	for _, p := range suite.Parts() {
		if !slices.Contains(names, p.Name) {
			rest = append(rest, p.Name)
		}
	}
	if len(rest) > 0 {
		s.notes = append(s.notes, fmt.Sprintf("Left out: %s: nothing that belongs to them changed since they passed.", strings.Join(rest, ", ")))
	}
	return nil
}

// changedSince lists the files that differ from a commit.
func changedSince(commit string) ([]string, error) {
	out, err := git("diff", "--name-only", commit)
	if err != nil {
		return nil, fmt.Errorf("the green commit %.12s is not in this checkout", commit)
	}
	added, err := git("ls-files", "--others", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	var files []string
	for f := range strings.Lines(out + "\n" + added) {
		if f = strings.TrimSpace(f); f != "" {
			files = append(files, filepath.ToSlash(f))
		}
	}
	return files, nil
}

func git(args ...string) (string, error) {
	out, err := exec.Command("git", args...).Output()
	return strings.TrimSpace(string(out)), err
}
