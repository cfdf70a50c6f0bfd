// Command suite runs Brig's tests. The Makefile calls it:
//
//	suite test      make test: every package, and the end-to-end tests at small size
//	suite all       make test-all: everything at full size, in parts
//	suite changed   make test-changed: the parts that the changed files affect
//	suite ci        .ci/run: make test, and those parts
//	suite list      prints the part of each test
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/brig-run/brig/internal/attack"
	"github.com/brig-run/brig/internal/race"
	"github.com/brig-run/brig/internal/suite"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
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
	quarantine []suite.Quarantined
	green      suite.Green
	runner     *suite.Runner
	options    suite.Options
	begin      time.Time
	notes      []string
}

// Files of the checkout that a session reads and writes.
const (
	greenFile = ".ci/green.json"
	timesFile = "bin/test-times.json"
)

func run(ctx context.Context, args []string) (bool, error) {
	if len(args) == 0 {
		return false, errors.New("usage: suite test|all|changed|ci|list [flags]")
	}
	flags := flag.NewFlagSet("suite "+args[0], flag.ContinueOnError)
	one := flags.String("run", "", "run one `test`, as TestName or TestName/subtest")
	part := flags.String("part", "", "of `suite all`: run these `parts` only, separated by |")
	slots := flags.Int("slots", 3, "how many end-to-end tests run side by side")
	slowest := flags.Int("slowest", 10, "how many tests the report names for their time")
	count := flags.Int("count", 0, "how often each test runs")
	failFast := flags.Bool("failfast", false, "end with the first failure")
	if err := flags.Parse(args[1:]); err != nil {
		return false, err
	}
	if *one != "" && args[0] != "test" && args[0] != "all" {
		return false, fmt.Errorf("suite %s takes no -run", args[0])
	}
	s, err := open(*count)
	if err != nil {
		return false, err
	}
	defer os.Remove(s.options.Book)
	defer os.RemoveAll(s.options.Races)
	s.runner.Slowest, s.runner.FailFast, s.runner.Slots = *slowest, *failFast, *slots
	switch args[0] {
	case "list":
		return true, s.list()
	case "test":
		if *one != "" {
			err = s.only(ctx, *one)
		} else if err = s.small(ctx); err == nil {
			err = s.attacks(s.complete(ctx))
		}
	case "all":
		err = s.all(ctx, *part, *one)
	case "changed":
		if err = s.changed(ctx); err == nil {
			err = s.attacks(false)
		}
	case "ci":
		if err = s.small(ctx); err == nil {
			err = s.changed(ctx)
		}
		if err == nil {
			err = s.attacks(s.complete(ctx))
		}
	default:
		err = fmt.Errorf("no command %q; there are test, all, changed, ci and list", args[0])
	}
	if err != nil {
		return false, err
	}
	if *one == "" {
		if err := s.runner.Times.Write(timesFile); err != nil {
			return false, err
		}
	}
	green := s.runner.Report(os.Stdout, s.notes...)
	return green || args[0] == "changed" && s.runner.Idle(), context.Cause(ctx)
}

// open opens the checkout in the working directory.
func open(count int) (*session, error) {
	tree, err := suite.OpenTree(".")
	if err != nil {
		return nil, err
	}
	s := &session{tree: tree, begin: time.Now()}
	if s.tests, s.flakyTests, s.quarantine, err = suite.Tests("."); err != nil {
		return nil, err
	}
	if s.green, err = suite.ReadGreen(greenFile); err != nil {
		return nil, err
	}
	// An interrupted run may have left the file, and every program would then
	// report a race.
	if err := os.Remove(race.Plant); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	book, err := os.CreateTemp("", "brig-attacks-")
	if err != nil {
		return nil, err
	}
	book.Close()
	races, err := os.MkdirTemp("", "brig-races-")
	if err != nil {
		return nil, err
	}
	s.options = suite.Options{Count: count, Book: book.Name(), Races: races, Detector: race.Options, Rotation: os.Getenv("ROTATION")}
	if s.options.Rotation == "" {
		// Consecutive commits run consecutive shares of long case lists.
		if s.options.Rotation, err = git("rev-list", "--count", "HEAD"); err != nil {
			s.options.Rotation = "0"
		}
	}
	s.runner = &suite.Runner{Out: os.Stdout, Times: suite.ReadTimes(timesFile, s.green)}
	return s, nil
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

// complete reports whether the run was not stopped early.
func (s *session) complete(ctx context.Context) bool {
	return ctx.Err() == nil && !(s.runner.FailFast && len(s.runner.Failures()) > 0)
}

// small runs make test.
func (s *session) small(ctx context.Context) error {
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

// only runs one test.
func (s *session) only(ctx context.Context, one string) error {
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
		return s.only(ctx, one)
	}
	names := strings.FieldsFunc(parts, func(r rune) bool { return r == '|' || r == ',' || r == ' ' })
	if parts == "" {
		for _, p := range suite.Parts() {
			names = append(names, p.Name)
		}
	}
	for _, name := range names {
		if err := s.part(ctx, name, one); err != nil {
			return err
		}
	}
	whole := parts == "" && one == ""
	if whole {
		s.flaky(ctx)
	}
	return s.attacks(whole && s.complete(ctx))
}

// part runs one part of make test-all.
func (s *session) part(ctx context.Context, name, one string) error {
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
	before := len(s.runner.Failures())
	f := s.runner.Run(ctx, plan)
	if err := s.races(); err != nil {
		return err
	}
	fmt.Printf("== %s took %s\n", p.Name, f.Duration.Round(time.Second))
	if one == "" && ctx.Err() == nil && len(s.runner.Failures()) == before {
		return s.record(name)
	}
	return nil
}

// races counts each report of the race detector as a failure.
func (s *session) races() error {
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
		s.runner.Fail("data race in "+filepath.Base(name), string(text))
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
	f, err := os.Open(s.options.Book)
	if err != nil {
		return err
	}
	defer f.Close()
	book, err := attack.Read(f)
	if err != nil {
		return err
	}
	if fi, err := f.Stat(); err == nil && fi.Size() == 0 && !whole {
		return nil
	}
	var table strings.Builder
	wrong := book.Report(&table, attack.Catalogue(), whole && os.Getuid() == 0)
	if s.options.Full {
		fmt.Print(table.String())
	}
	lines := strings.Split(strings.TrimSpace(table.String()), "\n")
	s.notes = append(s.notes, "Attacks: "+lines[len(lines)-1])
	if len(wrong) > 0 {
		s.runner.Fail("the book of attacks", strings.Join(wrong, "\n")+"\n")
	}
	return nil
}

// record records that a part passed at this commit.
func (s *session) record(part string) error {
	dirty, err := git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!"+greenFile)
	if err != nil {
		return err
	}
	if dirty != "" {
		fmt.Printf("== %s is not recorded as green: the checkout has uncommitted changes\n", part)
		return nil
	}
	commit, err := git("rev-parse", "HEAD")
	if err != nil {
		return err
	}
	s.green.Parts[part] = suite.Passed{Commit: commit, Date: time.Now().UTC().Format(time.DateOnly)}
	s.green.Times = s.runner.Times.OfParts()
	fmt.Printf("== %s is recorded as green in %s; commit it\n", part, greenFile)
	return s.green.Write(greenFile)
}

// budget is the time limit of a CI run.
const budget = 60 * time.Minute

// changed runs the parts affected by the changes since they last passed, within
// CI's time budget.
func (s *session) changed(ctx context.Context) error {
	names, why := s.green.PartsToRun(s.tests, changedSince)
	spent := time.Since(s.begin)
	if at, err := time.Parse(time.RFC3339, os.Getenv("BRIG_CI_BEGAN")); err == nil {
		spent = time.Since(at)
	}
	if len(names) == 0 {
		s.notes = append(s.notes, "No part runs: nothing that belongs to one changed since it passed.")
		return nil
	}
	chosen, left := suite.Fit(names, s.runner.Times, budget-spent)
	asked := map[string]bool{}
	for _, name := range names {
		asked[name] = true
	}
	for _, name := range chosen {
		fmt.Printf("== %s runs for %s\n", name, why[name])
	}
	s.options.Full = true
	for i, name := range chosen {
		if s.runner.FailFast && len(s.runner.Failures()) > 0 {
			s.notes = append(s.notes, "Left out after the first failure: "+strings.Join(chosen[i:], ", ")+".")
			break
		}
		if err := s.part(ctx, name, ""); err != nil {
			return err
		}
	}
	for _, name := range left {
		s.notes = append(s.notes, fmt.Sprintf("Left out: %s, which %s asks for: it takes about %s, and CI has %s.", name, why[name],
			suite.ExpectedOf(name, s.runner.Times).Round(time.Second), budget))
	}
	var rest []string
	for _, p := range suite.Parts() {
		if !asked[p.Name] {
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
