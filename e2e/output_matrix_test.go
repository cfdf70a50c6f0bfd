package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/testenv"
)

// matrixServer is a server with a default image and a default number of CPUs for sandboxes.
type matrixServer struct {
	*server
	image string
	home  string // the home directory for the brig command
	// e2b and e2bDomain are the environments of E2B's clients, without and with a domain.
	e2b, e2bDomain []string
}

// matrixCell is the combination of a client, an image and a number of CPUs.
type matrixCell struct {
	client outputClient
	image  string
	cpus   float64
}

// repeatsVariable is the environment variable that sets the number of rounds of the matrix, and
// increases the rounds of the tests of whole output. The default is 1, because a round takes up
// to a minute per client.
const repeatsVariable = "BRIG_OUTPUT_REPEATS"

// outputRepeats returns the number of rounds of the matrix.
func outputRepeats(t *testing.T) int {
	t.Helper()
	text := os.Getenv(repeatsVariable)
	if text == "" {
		return 1
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s: %q is no number of rounds", repeatsVariable, text)
	}
	return n
}

// TestOutputMatrix verifies that every client receives the exact output of every call: no part is
// missing, and no part is from another call. At full size, it runs each published client with
// each number of CPUs. At small size, it runs a share of the cases with one client that needs no
// download. The control is an output that is cut short, which the matrix must detect.
//
//suite:part clients
func TestOutputMatrix(t *testing.T) { outputMatrix(t, brig.HostImage) }

// TestOutputMatrixBase is TestOutputMatrix with the image base.
//
//suite:part clients full
func TestOutputMatrixBase(t *testing.T) { outputMatrix(t, "base") }

// TestOutputMatrixCodeInterpreter is TestOutputMatrix with the image code-interpreter-v1.
//
//suite:part clients full
func TestOutputMatrixCodeInterpreter(t *testing.T) { outputMatrix(t, "code-interpreter-v1") }

func outputMatrix(t *testing.T, image string) {
	needRoot(t)
	var cells []matrixCell
	for _, cpus := range []float64{0.25, 1, 2} {
		for _, c := range outputClients {
			if testenv.IsFull() || !c.download {
				cells = append(cells, matrixCell{c, image, cpus})
			}
		}
	}
	// Cells with the same number of CPUs share a server.
	for cells = testenv.Share(t, cells, 1); len(cells) > 0; {
		first, n := cells[0], 1
		for n < len(cells) && cells[n].cpus == first.cpus {
			n++
		}
		group := cells[:n]
		cells = cells[n:]
		t.Run(fmt.Sprint(first.cpus), func(t *testing.T) {
			s := startMatrixServer(t, image, first.cpus)
			slots := make(chan struct{}, 3)
			var clients sync.WaitGroup
			defer clients.Wait()
			for _, cell := range group {
				clients.Go(func() {
					slots <- struct{}{}
					defer func() { <-slots }()
					t.Run(cell.client.name, func(t *testing.T) { cell.run(t, s) })
				})
			}
		})
	}
}

// imageDir returns a data folder with an image that brig setup built.
func imageDir(t *testing.T, image string) string {
	t.Helper()
	packages, err := os.ReadFile("../cmd/brig/templates.go")
	if err != nil {
		t.Fatal(err)
	}
	return cached(t, "image", image+string(packages), func(dir string) *exec.Cmd {
		return exec.CommandContext(t.Context(), bin(t, "brig"), "setup", image, "--data-dir", dir)
	})
}

// startMatrixServer starts a server with an image and a number of CPUs as defaults.
func startMatrixServer(t *testing.T, image string, cpus float64) *matrixServer {
	t.Helper()
	cert, key := certificate(t, "e2b.test")
	port := testenv.Port(t)
	domain := fmt.Sprintf("e2b.test:%d", port)
	text := fmt.Sprintf("limits: {default: {cpus: %g}}\nlease: {default: 1h, max: 24h}\ntimeout: {default: 2m}\nkernels: {image: %s, timeout: 2m}\n"+
		"e2b: {domain: %q, listen: \"127.0.0.1:%d\", cert: %q, key: %q, unsecured: true, templates: {matrix: %s}}\n",
		cpus, image, domain, port, cert, key, image)
	config := filepath.Join(t.TempDir(), "brig.yaml")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := dataDir(t)
	if image != brig.HostImage {
		output(t, "cp", "-al", filepath.Join(imageDir(t, image), "images"), dir) // images do not change
	}
	s := startServer(t, dir, "--config", config)
	secret, err := os.ReadFile(filepath.Join(dir, "e2b.key"))
	if err != nil {
		t.Fatal(err)
	}
	e2bKey := "E2B_API_KEY=" + strings.TrimSpace(string(secret))
	return &matrixServer{
		server: s, image: image, home: t.TempDir(),
		e2b:       []string{e2bKey, "E2B_API_URL=" + s.url, "E2B_SANDBOX_URL=" + s.url},
		e2bDomain: []string{e2bKey, "E2B_DOMAIN=" + domain, "SSL_CERT_FILE=" + cert},
	}
}

// outputVerdict is the result of comparing an answer with the expected answer.
type outputVerdict string

const (
	isExact   outputVerdict = "exact"
	isShort   outputVerdict = "short"   // a part is missing
	isForeign outputVerdict = "foreign" // it contains a mark of another call
	isWrong   outputVerdict = "wrong"   // it differs in another way
	isFailed  outputVerdict = "failed"  // the client reports an error
)

// lastMark numbers the calls of all clients.
var lastMark atomic.Int64

// nextMark returns a different text of six digits for each call.
func nextMark() string { return fmt.Sprintf("%06d", 100000+lastMark.Add(1)%900000) }

// run runs the cases of the matrix for a client, and prints the number of exact answers.
func (m *matrixCell) run(t *testing.T, s *matrixServer) {
	call := m.client.open(t, s)
	counts, rounds, reported := map[outputVerdict]int{}, outputRepeats(t), map[string]int{}
	cases := testenv.Share(t, outputCases, 9) // 7 shares, so that each of 12 clients gets each share
	for round := range rounds {
		for i := range cases {
			o := &cases[i]
			for _, form := range o.forms {
				if !m.client.runs(o, form) || o.seldom && round%10 != 0 {
					continue
				}
				verdict, reason := m.check(o, form, call)
				counts[verdict]++
				name := fmt.Sprintf("%s of %s, %s", form, o.language, o.name)
				if reported[name]++; verdict != isExact && reported[name] <= 3 {
					t.Errorf("%s: %s: %s", name, verdict, reason)
				}
			}
		}
	}
	control := asCell
	if !m.client.runs(&outputCase{forms: inCell, language: brig.Python}, asCell) {
		control = asCommand
	}
	if verdict, reason := m.check(&shortCase, control, call); verdict != isShort {
		t.Errorf("the control: %s: %s", verdict, reason)
	}
	t.Logf("%s, %g CPUs, %s: %d rounds, %d exact, %d short, %d foreign, %d wrong, %d failed", m.image, m.cpus, m.client.name, rounds,
		counts[isExact], counts[isShort], counts[isForeign], counts[isWrong], counts[isFailed])
}

// check makes a call and compares the answer with the expected answer.
func (m *matrixCell) check(o *outputCase, form outputForm, call func(outputCall) outputAnswer) (outputVerdict, string) {
	mark := nextMark()
	code := at(o.code, mark)
	if form == asCommand {
		code = o.shellCommand(code)
	}
	a := call(outputCall{form, o.language, code})
	if a.Failure != "" {
		return isFailed, a.Failure
	}
	if m.client.notes {
		a.Stderr = carryNote.ReplaceAllString(a.Stderr, "")
	}
	if o.attack && isContextEndError(a.Error) {
		return isExact, ""
	}
	for _, stream := range []struct{ name, got, want string }{
		{"stdout", a.Stdout, m.client.bound(at(o.stdout, mark))}, {"stderr", a.Stderr, m.client.bound(at(o.stderr, mark))},
	} {
		if v := judgeOutput(stream.got, stream.want, mark); v != isExact {
			return v, fmt.Sprintf("%s has %d bytes instead of %d: %s (error %q %.300q, exit %d)", stream.name, len(stream.got), len(stream.want), excerpt(stream.got, stream.want), a.Error, a.Value, a.Exit)
		}
	}
	if form != asCell {
		if a.Exit != o.exit {
			return isWrong, fmt.Sprintf("the exit code is %d instead of %d", a.Exit, o.exit)
		}
		return isExact, ""
	}
	if a.Error != o.raises || o.value != "" && judgeOutput(a.Value, at(o.value, mark), mark) != isExact {
		return isWrong, fmt.Sprintf("the exception is %q, %d bytes %.300q", a.Error, len(a.Value), a.Value)
	}
	return isExact, ""
}

// carryNote matches a line that reports which state an ephemeral kernel does not carry from cell
// to cell.
var carryNote = regexp.MustCompile(`brig: .* carried .*\n`)

// isContextEndError reports whether name is the exception of one of the APIs for a context that has
// ended.
func isContextEndError(name string) bool {
	return name == "ProtocolViolation" || name == "UnexpectedEndOfExecution"
}

// bound returns the part of text that the client receives within its limit for streams.
func (c *outputClient) bound(text string) string {
	if c.maxStream == 0 || len(text) <= c.maxStream {
		return text
	}
	half := c.maxStream / 2
	return fmt.Sprintf("%s\n[%d bytes are left out]\n%s", strings.ToValidUTF8(text[:half], "\uFFFD"), len(text)-c.maxStream, strings.ToValidUTF8(text[len(text)-half:], "\uFFFD"))
}

// judgeOutput compares an output with the expected output of the call with the given mark.
func judgeOutput(got, want, mark string) outputVerdict {
	switch {
	case got == want:
		return isExact
	case len(got) < len(want):
		return isShort
	case strings.Contains(got, findEarlierMark(got, mark)):
		return isForeign
	}
	return isWrong
}

// findEarlierMark returns the mark of one of the calls before the call with mark, if got contains
// it.
func findEarlierMark(got, mark string) string {
	n, _ := strconv.Atoi(mark)
	for k := n - 1; k > n-500 && k > 100000; k-- {
		if other := fmt.Sprintf("%06d", k); strings.Contains(got, other) && !strings.Contains(strings.Repeat(mark, 2), other) {
			return other
		}
	}
	return "\x00"
}

// excerpt returns the part of an output where it begins to differ from the expected output.
func excerpt(got, want string) string {
	at := 0
	for at < len(got) && at < len(want) && got[at] == want[at] {
		at++
	}
	from := max(at-10, 0)
	return fmt.Sprintf("at %d there is %.60q instead of %.60q", at, got[from:], want[from:])
}

// TestOutputMatrixDetectsWrongOutput verifies that judgeOutput distinguishes the ways in which an
// output can be wrong.
//
//suite:part clients
func TestOutputMatrixDetectsWrongOutput(t *testing.T) {
	for _, c := range []struct {
		got, want string
		verdict   outputVerdict
	}{
		{"100007\n", "100007\n", isExact}, {"100007", "100007\n", isShort}, {"", "100007\n", isShort},
		{"100006\n100007\n", "100007\n", isForeign}, {"100007\n\n", "100007\n", isWrong}, {"100007\r", "100007\n", isWrong},
	} {
		if v := judgeOutput(c.got, c.want, "100007"); v != c.verdict {
			t.Errorf("%q instead of %q is %s, not %s", c.got, c.want, v, c.verdict)
		}
	}
	mcp := outputClient{maxStream: 8}
	if got := mcp.bound("0123456789"); got != "0123\n[2 bytes are left out]\n6789" {
		t.Errorf("the bound is %q", got)
	}
}
