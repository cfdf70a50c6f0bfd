package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/brig-run/brig"
)

// outputCall is a call that a client of the output matrix makes.
type outputCall struct {
	Form     outputForm    `json:"form"`
	Language brig.Language `json:"language"`
	Code     string        `json:"code"`
}

// outputAnswer is the result of a call as reported by a client. Failure is an error of the client
// itself.
type outputAnswer struct {
	Stdout, Stderr string
	Exit           int
	Error, Value   string // the exception
	Failure        string
}

// outputClient is a client of one of the server's APIs, with its own sandbox.
type outputClient struct {
	name  string
	forms []outputForm
	// python means that the client can run only Python.
	python bool
	// maxStream is the maximum size of a stream in a result; 0 means unlimited.
	maxStream int
	// notes means that stderr contains lines about values that are not carried to the next cell.
	notes bool
	// download means that the client is a published package that must be downloaded.
	download bool
	// open starts the client for a server. The returned function is called by only one goroutine.
	open func(t *testing.T, s *matrixServer) func(outputCall) outputAnswer
}

// outputCallTimeout is the maximum time of a call.
const outputCallTimeout = 2 * time.Minute

// outputClients are the clients of the output matrix.
var outputClients = []outputClient{
	{name: "rest", forms: anyForm, maxStream: 1 << 20, open: openREST},
	{name: "rest-stream", forms: anyForm, open: openRESTStream},
	{name: "cli", forms: programs, open: openCLI},
	{name: "mcp-go", forms: anyForm, maxStream: 64 << 10, open: openMCP},
	{name: "rest-python", forms: anyForm, maxStream: 1 << 20, download: true, open: openRESTPython},
	{name: "e2b-javascript", forms: []outputForm{asCell, asCommand}, download: true, open: openE2BJavaScript},
	{name: "e2b-python", forms: []outputForm{asCell, asCommand}, download: true, open: openE2BPython},
	{name: "e2b-python-1", forms: []outputForm{asCell, asCommand}, download: true, open: openE2BPythonOlder},
	{name: "kernels", forms: inCell, python: true, download: true, open: openKernels("python3")},
	{name: "kernels-ephemeral", forms: inCell, python: true, notes: true, download: true, open: openKernels("python3-ephemeral")},
	{name: "mcp-javascript", forms: anyForm, maxStream: 64 << 10, download: true, open: openMCPJavaScript("sdk")},
	{name: "mcp-javascript-stdio", forms: anyForm, maxStream: 64 << 10, download: true, open: openMCPJavaScript("client")},
}

// runs reports whether the client can run the case o in the given form.
func (c *outputClient) runs(o *outputCase, form outputForm) bool {
	return slices.Contains(c.forms, form) && slices.Contains(o.forms, form) && (!c.python || o.language == brig.Python) &&
		(o.only == "" || slices.Contains(strings.Fields(o.only), c.name))
}

// createBox creates a sandbox for a client with the server's default limits.
func createBox(t *testing.T, s *matrixServer, name string) {
	t.Helper()
	if _, err := s.client().Create(t.Context(), brig.Spec{Name: name, Image: s.image, TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.client().Remove(context.WithoutCancel(t.Context()), name); err != nil {
			t.Error(err)
		}
	})
}

// answerOf converts the result of a program to an outputAnswer.
func answerOf(r *brig.Result, err error) outputAnswer {
	if err != nil {
		return outputAnswer{Failure: err.Error()}
	}
	return outputAnswer{Stdout: wholeOutput(r.Stdout), Stderr: wholeOutput(r.Stderr), Exit: r.ExitCode}
}

// wholeOutput returns an output as a string, with a mark if a part is missing.
func wholeOutput(o brig.Output) string {
	if o.Truncated() {
		return fmt.Sprintf("%s[truncated]%s", o.Head, o.Tail)
	}
	return string(o.Head) + string(o.Tail)
}

// openREST returns a REST client that reads the outputs from the results.
func openREST(t *testing.T, s *matrixServer) func(outputCall) outputAnswer {
	c, name := s.client(), "rest"
	createBox(t, s, name)
	return func(call outputCall) outputAnswer {
		switch call.Form {
		case asRun:
			o, err := c.Run(t.Context(), brig.Program{Language: call.Language, Code: call.Code, Image: s.image, Timeout: outputCallTimeout}, brig.IO{})
			if err != nil {
				return outputAnswer{Failure: err.Error()}
			}
			return answerOf(&o.Result, nil)
		case asCommand:
			return answerOf(c.Exec(t.Context(), name, brig.Command{Shell: call.Code, Timeout: outputCallTimeout}, brig.IO{}))
		}
		r, err := c.RunCode(t.Context(), name, brig.Code{Language: call.Language, Source: call.Code, Timeout: outputCallTimeout}, nil)
		if err != nil {
			return outputAnswer{Failure: err.Error()}
		}
		a := outputAnswer{Stdout: wholeOutput(r.Stdout), Stderr: wholeOutput(r.Stderr)}
		if r.Error != nil {
			a.Error, a.Value = r.Error.Name, r.Error.Value
		}
		return a
	}
}

// openRESTStream returns a REST client that reads the outputs as streams.
func openRESTStream(t *testing.T, s *matrixServer) func(outputCall) outputAnswer {
	c, name := s.client(), "stream"
	createBox(t, s, name)
	return func(call outputCall) (a outputAnswer) {
		var out, errs bytes.Buffer
		sio := brig.IO{Stdout: &out, Stderr: &errs}
		var err error
		switch call.Form {
		case asRun:
			var o *brig.Outcome
			if o, err = c.Run(t.Context(), brig.Program{Language: call.Language, Code: call.Code, Image: s.image, Timeout: outputCallTimeout}, sio); err == nil {
				a.Exit = o.ExitCode
			}
		case asCommand:
			var r *brig.Result
			if r, err = c.Exec(t.Context(), name, brig.Command{Shell: call.Code, Timeout: outputCallTimeout}, sio); err == nil {
				a.Exit = r.ExitCode
			}
		case asCell:
			var r *brig.CodeResult
			r, err = c.RunCode(t.Context(), name, brig.Code{Language: call.Language, Source: call.Code, Timeout: outputCallTimeout}, func(e brig.CodeEvent) error {
				out.Write(e.Stdout)
				errs.Write(e.Stderr)
				return nil
			})
			if err == nil && r.Error != nil {
				a.Error, a.Value = r.Error.Name, r.Error.Value
			}
		}
		if err != nil {
			a.Failure = err.Error()
		}
		a.Stdout, a.Stderr = out.String(), errs.String()
		return a
	}
}

// openCLI returns the brig command as a client.
func openCLI(t *testing.T, s *matrixServer) func(outputCall) outputAnswer {
	createBox(t, s, "cli")
	return func(call outputCall) (a outputAnswer) {
		args := []string{"sandbox", "exec", "--timeout", outputCallTimeout.String(), "cli", "--", "/bin/sh", "-c", call.Code}
		if call.Form == asRun {
			args = []string{"run", "--timeout", outputCallTimeout.String(), "--image", s.image, "-l", string(call.Language), "-c", call.Code}
		}
		var out, errs bytes.Buffer
		cmd := exec.CommandContext(t.Context(), bin(t, "brig"), args...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.home, "BRIG_URL=" + s.url, "BRIG_API_KEY=" + s.key}
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
			a.Failure = err.Error()
		}
		a.Stdout, a.Stderr, a.Exit = out.String(), errs.String(), cmd.ProcessState.ExitCode()
		return a
	}
}

// openMCP returns the Model Context Protocol's client for Go.
func openMCP(t *testing.T, s *matrixServer) func(outputCall) outputAnswer {
	createBox(t, s, "mcp")
	c, err := sdk.NewClient(&sdk.Implementation{Name: "tests", Version: "1"}, nil).
		Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: s.url + "/mcp", HTTPClient: &http.Client{Transport: newLine(s.key)}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return func(call outputCall) (a outputAnswer) {
		args := map[string]any{"timeout_seconds": outputCallTimeout.Seconds()}
		tool := "run_code"
		switch call.Form {
		case asCommand:
			tool, args["sandbox"], args["command"] = "run_shell", "mcp", call.Code
		case asCell:
			args["sandbox"], args["language"], args["code"] = "mcp", call.Language, call.Code
		case asRun:
			args["image"], args["language"], args["code"] = s.image, call.Language, call.Code
		}
		res, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: args})
		if err != nil || res.IsError {
			a.Failure = fmt.Sprintf("%v, %+v", err, res)
			return a
		}
		var out struct {
			Stdout, Stderr string
			ExitCode       int `json:"exit_code"`
			Error          struct{ Name, Message string }
		}
		b, err := json.Marshal(res.StructuredContent)
		if err == nil {
			err = json.Unmarshal(b, &out)
		}
		if err != nil {
			a.Failure = err.Error()
		}
		a.Stdout, a.Stderr, a.Exit, a.Error, a.Value = out.Stdout, out.Stderr, out.ExitCode, out.Error.Name, out.Error.Message
		return a
	}
}

// openScript starts a client in another language, which reads calls and writes their results.
func openScript(t *testing.T, cmd *exec.Cmd, s *matrixServer, env ...string) func(outputCall) outputAnswer {
	t.Helper()
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "IMAGE=" + s.image, "TEMPLATE=matrix", "BRIG_URL=" + s.url}, env...)
	var errs outputLog
	cmd.Stderr = &errs
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	pipe, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	onCleanup(t, func() {
		in.Close() // the client then removes its sandbox
		defer time.AfterFunc(promptTimeout, func() { cmd.Process.Kill() }).Stop()
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %s", err, &errs)
		}
	})
	lines := bufio.NewReader(pipe)
	return func(call outputCall) (a outputAnswer) {
		t.Helper()
		if err := json.NewEncoder(in).Encode(call); err != nil {
			t.Fatalf("%v: %s", err, &errs)
		}
		line, err := lines.ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(line, &a)
		}
		if err != nil {
			t.Fatalf("%v: %s", err, &errs)
		}
		return a
	}
}

// pip returns a directory with the given packages from PyPI.
func pip(t *testing.T, packages []string) string {
	t.Helper()
	return cached(t, "pip", strings.Join(packages, " "), func(dir string) *exec.Cmd {
		return exec.CommandContext(t.Context(), "python3", append([]string{"-m", "pip", "install", "-q", "--target", dir}, packages...)...)
	})
}

// pythonScript returns a command for a Python script of this package.
func pythonScript(t *testing.T, name string) *exec.Cmd {
	t.Helper()
	path, err := filepath.Abs(name)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("python3", "-B", path)
	cmd.Dir = t.TempDir()
	return cmd
}

func openRESTPython(t *testing.T, s *matrixServer) func(outputCall) outputAnswer {
	source, err := filepath.Abs("../sdk/python/src")
	if err != nil {
		t.Fatal(err)
	}
	return openScript(t, pythonScript(t, "python/output.py"), s, "BRIG_API_KEY="+s.key, "PYTHONPATH="+source+":"+pip(t, smolagents))
}

func openE2BPython(t *testing.T, s *matrixServer) func(outputCall) outputAnswer {
	return openScript(t, pythonScript(t, "e2b/output.py"), s, append(s.e2b, "GENERATION=2", "PYTHONPATH="+pip(t, smolagents))...)
}

func openE2BPythonOlder(t *testing.T, s *matrixServer) func(outputCall) outputAnswer {
	return openScript(t, pythonScript(t, "e2b/output.py"), s, append(s.e2bDomain, "GENERATION=1", "PYTHONPATH="+pip(t, olderPythonClients))...)
}

func openE2BJavaScript(t *testing.T, s *matrixServer) func(outputCall) outputAnswer {
	cmd := exec.Command("node", "output.mjs")
	cmd.Dir = npm(t, "e2b")
	return openScript(t, cmd, s, s.e2b...)
}

// openKernels returns smolagents' client for kernel gateways, with kernels of the given spec.
func openKernels(spec string) func(t *testing.T, s *matrixServer) func(outputCall) outputAnswer {
	return func(t *testing.T, s *matrixServer) func(outputCall) outputAnswer {
		return openScript(t, pythonScript(t, "smolagents/output.py"), s, "SPEC="+spec, "BRIG_KEY="+s.key, "PYTHONPATH="+pip(t, smolagents))
	}
}

// openMCPJavaScript returns the Model Context Protocol's JavaScript client of the given
// generation. The newer generation uses the standard streams of a command instead of HTTP.
func openMCPJavaScript(generation string) func(t *testing.T, s *matrixServer) func(outputCall) outputAnswer {
	return func(t *testing.T, s *matrixServer) func(outputCall) outputAnswer {
		cmd := exec.Command("node", "output.mjs")
		cmd.Dir = npm(t, "mcp")
		env := []string{"BRIG_API_KEY=" + s.key, "BRIG_MCP_CLIENT=" + generation, "BRIG_MCP_URL=" + s.url + "/mcp"}
		if generation == "client" {
			env = append(env, mcpCommand(t, "mcp", "--url", s.url)...)
		}
		return openScript(t, cmd, s, env...)
	}
}
