//go:build bench

package main

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/brig-run/brig"
)

//go:embed bench_abuse.py
var abuseScript string

// abuse is an attack on one limit.
type abuse struct {
	name, role  string
	description string // for the progress output
	limitName   string // the limit that contains the attack
	// prepare creates the resources of the attack, and returns the function
	// that runs it.
	prepare func(context.Context, *attacker) (func(context.Context), error)
}

// withoutPreparation returns an attack that needs no preparation.
func withoutPreparation(f func(context.Context, *attacker)) func(context.Context, *attacker) (func(context.Context), error) {
	return func(_ context.Context, a *attacker) (func(context.Context), error) {
		return func(ctx context.Context) { f(ctx, a) }, nil
	}
}

// inBox returns an attack on a sandbox of the attacker. If guest is not empty, that program of
// bench_abuse.py runs in the sandbox.
func inBox(guest string, limits brig.Limits, f func(context.Context, *attacker)) func(context.Context, *attacker) (func(context.Context), error) {
	return func(ctx context.Context, a *attacker) (func(context.Context), error) {
		err := a.createSandbox(ctx, "one", brig.Spec{Limits: limits})
		if err == nil && guest != "" {
			_, err = a.member.Processes("one").Start(ctx, brig.ProcessSpec{Command: a.program(guest), NoInput: true})
		}
		return func(ctx context.Context) { f(ctx, a) }, err
	}
}

// program returns the command that runs the named program of bench_abuse.py in a sandbox.
func (a *attacker) program(name string) brig.Command {
	return brig.Command{Argv: []string{"python3", "-c", abuseScript, name, a.world.Own, fmt.Sprint(a.world.TCP), fmt.Sprint(a.world.TLS)}}
}

// guestAttack returns an attack by a program in n sandboxes. Sandboxes that end are
// replaced.
func guestAttack(n int, program string, limits brig.Limits, outside bool) func(context.Context, *attacker) (func(context.Context), error) {
	return withoutPreparation(func(ctx context.Context, a *attacker) {
		main := a.program(program)
		spec := brig.Spec{Limits: limits, Command: &main}
		if outside {
			spec.Egress = brig.Egress{Rules: []brig.EgressRule{{CIDR: a.world.Own + "/32"}, {Host: abusePlain}, {Host: abuseLooked, Methods: []string{"GET"}}}}
		}
		a.keepSandboxes(ctx, n, spec)
	})
}

// abuses returns the cases, in the order of the table.
func abuses() []abuse {
	small := brig.Limits{Memory: 128 * brig.MiB, Disk: 256 * brig.MiB}
	wide := brig.Limits{Memory: 256 * brig.MiB, OpenFiles: 4096}
	return []abuse{
		{"none", "nobody", "nothing: what the benchmark itself changes", "no bound", withoutPreparation(func(ctx context.Context, _ *attacker) { <-ctx.Done() })},

		{"wrong-keys", "no key", "asks with keys that are none, 32 at once", "failures of an address", withoutPreparation(sendWrongKeys)},
		{"logins", "no key", "begins logins, 32 at once", "logins of an address", withoutPreparation(sendLogins)},
		{"connections", "no key", "opens connections and sends half a header", "the time for a header", withoutPreparation(sendHalfHeaders)},

		{"viewer-bodies", "viewer", "sends bodies of 60 MB, 16 at once", "the gate before bodies", withoutPreparation(sendLargeBodies)},
		{"viewer-endless", "viewer", "sends bodies that never end, 500 at once", "the gate before bodies", withoutPreparation(sendEndlessBodies)},
		{"viewer-watches", "viewer", "opens watches and attaches to a process until it is refused", "streams", inBox("printer", brig.Limits{}, openWatches)},
		{"viewer-lists", "viewer", "lists sandboxes, executions, workspaces and files, 16 at once", "quota rate", inBox("", brig.Limits{}, floodWithLists)},
		{"viewer-unread", "viewer", "follows a process that prints and does not read", "requests.unread, streams", inBox("printer", brig.Limits{}, openUnreadOutput)},

		{"member-bodies", "member", "sends bodies of 60 MB with strings and with small values, 16 at once", "requests.tenant_bodies", withoutPreparation(sendMemberBodies)},
		{"member-runs", "member", "asks for 64 runs at once", "quota executions, lines of capacity", withoutPreparation(startManyRuns)},
		{"member-output", "member", "runs programs that print as fast as they can, 10 at once", "limits.output, keep.bytes", inBox("", brig.Limits{Output: 16 * brig.MiB}, produceMaximalOutput)},
		{"member-unread", "member", "streams output and does not read, 10 at once", "requests.unread", inBox("", brig.Limits{Output: 16 * brig.MiB}, startUnreadExecs)},
		{"member-files", "member", "writes and reads files of 64 MiB, 8 at once", "limits.disk, streams", inBox("", brig.Limits{Disk: brig.GiB}, writeManyFiles)},
		{"member-sandboxes", "member", "makes and removes sandboxes, 20 at once", "quota sandboxes, capacity", withoutPreparation(churn)},
		{"member-audit", "member", "makes and removes workspaces and is refused other changes, 16 at once", "quota rate, audit.keep", withoutPreparation(writeAuditLines)},

		{"guest-forks", "sandbox", "forks without end in 20 sandboxes", "limits.processes", guestAttack(abuseSandboxes, "forks", brig.Limits{}, false)},
		{"guest-memory", "sandbox", "uses memory up to the limit and beyond in 20 sandboxes", "limits.memory", guestAttack(abuseSandboxes, "memory", small, false)},
		{"guest-disk", "sandbox", "fills 256 MiB of disk and writes it again in 8 sandboxes", "limits.disk", guestAttack(8, "disk", brig.Limits{Memory: 256 * brig.MiB, Disk: 256 * brig.MiB}, false)},
		{"guest-cpu", "sandbox", "spins with four processes in 20 sandboxes", "limits.cpus, weights", guestAttack(abuseSandboxes, "spin", small, false)},
		{"guest-tcp", "sandbox", "opens connections and keeps them in 8 sandboxes", "connections of a sandbox and of all", guestAttack(8, "connections", wide, true)},
		{"guest-names", "sandbox", "asks for names in 8 sandboxes", "names at once, egress.memory", guestAttack(8, "names", wide, true)},
		{"guest-tls", "sandbox", "begins inspected TLS handshakes in 8 sandboxes", "handshakes at once, egress.memory", guestAttack(8, "handshakes", wide, true)},
		{"guest-http2", "sandbox", "opens inspected HTTP/2 streams that are not answered in 8 sandboxes", "egress.memory", guestAttack(8, "streams", wide, true)},
		{"guest-websockets", "sandbox", "sends frames of inspected WebSockets in 8 sandboxes", "egress.memory", guestAttack(8, "websockets", wide, true)},
	}
}

func sendWrongKeys(ctx context.Context, a *attacker) {
	a.repeatConcurrently(ctx, 32, func(ctx context.Context, i int) {
		a.get(ctx, http.MethodGet, "/v1/sandboxes", fmt.Sprintf("brig_%052d", i), "")
	})
}

func sendLogins(ctx context.Context, a *attacker) {
	a.repeatConcurrently(ctx, 32, func(ctx context.Context, _ int) { a.get(ctx, http.MethodGet, "/v1/auth/login", "", "") })
}

// sendHalfHeaders opens connections and never completes the request headers.
func sendHalfHeaders(ctx context.Context, a *attacker) {
	a.repeatConcurrently(ctx, 1000, func(ctx context.Context, _ int) {
		c, err := a.openStream(ctx, "x", http.MethodGet, "/v1/sandboxes", "X-Half: ", nil)
		if err != nil {
			sleep(ctx, 100*time.Millisecond)
			return
		}
		defer c.Close()
		a.count("connections opened", 1)
		_, _ = io.Copy(io.Discard, c)
	})
}

// sendLargeBodies sends bodies of 60 MB. A transfer ends early if the server responds.
func sendLargeBodies(ctx context.Context, a *attacker) {
	sendBodies(ctx, a, a.Viewer, func(int) []byte { return bytes.Repeat([]byte("x"), 1<<20) })
}

// sendMemberBodies sends JSON bodies of two kinds: long strings, whose decoded size is about the
// same, and many small values, whose decoded size is much larger.
func sendMemberBodies(ctx context.Context, a *attacker) {
	sendBodies(ctx, a, a.Member, func(i int) []byte {
		if i%2 == 0 {
			return bytes.Repeat([]byte("x"), 1<<20)
		}
		return []byte(strings.Repeat(`","arguments":{"a":[[],{},0,""]},"x":"`, 27_000))
	})
}

func sendBodies(ctx context.Context, a *attacker, key string, part func(i int) []byte) {
	a.repeatConcurrently(ctx, 16, func(ctx context.Context, i int) {
		c, err := a.openStream(ctx, key, http.MethodPost, "/v1/run", "Content-Type: application/json\r\nContent-Length: 60000000\r\n", []byte(`{"code":"`))
		if err != nil {
			return
		}
		defer c.Close()
		_ = c.SetWriteDeadline(time.Now().Add(20 * time.Second))
		piece := part(i)
		for remaining := 60_000_000 - 9; remaining > 0; remaining -= len(piece) {
			n, err := c.Write(piece[:min(remaining, len(piece))])
			a.count("MB sent", int64(n)/1e6)
			if err != nil {
				break // the server has responded
			}
		}
		a.count(fmt.Sprintf("answers %d", status(c, 20*time.Second)), 1)
	})
}

// sendEndlessBodies sends bodies that never end, one byte at a time.
func sendEndlessBodies(ctx context.Context, a *attacker) {
	a.repeatConcurrently(ctx, 500, func(ctx context.Context, _ int) {
		c, err := a.openStream(ctx, a.Viewer, http.MethodPost, "/v1/run", "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n", []byte("1\r\n{\r\n"))
		if err != nil {
			sleep(ctx, 100*time.Millisecond)
			return
		}
		defer c.Close()
		for ctx.Err() == nil {
			sleep(ctx, 500*time.Millisecond)
			if _, err := c.Write([]byte("1\r\n \r\n")); err != nil {
				break
			}
		}
		a.count(fmt.Sprintf("answers %d", status(c, time.Second)), 1)
	})
}

// holdStreams keeps streamed responses open without reading them. It retries
// requests that the server rejects.
func (a *attacker) holdStreams(ctx context.Context, n int, openOne func(ctx context.Context, i int) (net.Conn, error)) {
	a.repeatConcurrently(ctx, n, func(ctx context.Context, i int) {
		c, err := openOne(ctx, i)
		if err != nil {
			sleep(ctx, 100*time.Millisecond)
			return
		}
		defer c.Close()
		code := status(c, 30*time.Second)
		if a.count(fmt.Sprintf("answers %d", code), 1); code == http.StatusOK {
			<-ctx.Done()
		} else {
			sleep(ctx, 100*time.Millisecond)
		}
	})
}

// attachable returns the path of the output of the program that prints in sandbox "one".
func (a *attacker) attachable(ctx context.Context) string {
	list, err := a.member.Processes("one").List(ctx)
	if err != nil || len(list) == 0 {
		return "/v1/sandboxes/one/logs"
	}
	return fmt.Sprintf("/v1/sandboxes/one/processes/%d/output", list[0].PID)
}

func openWatches(ctx context.Context, a *attacker) {
	attach := a.attachable(ctx)
	paths := []string{attach, "/v1/sandboxes/one/files/watch?path=/&recursive=false"}
	a.holdStreams(ctx, 200, func(ctx context.Context, i int) (net.Conn, error) {
		return a.openStream(ctx, a.Viewer, http.MethodGet, paths[i%len(paths)], "", nil)
	})
}

func openUnreadOutput(ctx context.Context, a *attacker) {
	attach := a.attachable(ctx)
	a.holdStreams(ctx, 200, func(ctx context.Context, _ int) (net.Conn, error) {
		return a.openStream(ctx, a.Viewer, http.MethodGet, attach, "", nil)
	})
}

func floodWithLists(ctx context.Context, a *attacker) {
	paths := []string{"/v1/sandboxes", "/v1/sandboxes/one/execs", "/v1/workspaces", "/v1/sandboxes/one/files?path=/usr/bin"}
	a.repeatConcurrently(ctx, 16, func(ctx context.Context, i int) { a.get(ctx, http.MethodGet, paths[i%len(paths)], a.Viewer, "") })
}

func startManyRuns(ctx context.Context, a *attacker) {
	a.repeatConcurrently(ctx, 64, func(ctx context.Context, _ int) {
		_, err := a.member.Run(ctx, brig.Program{Language: brig.Python, Code: benchProgram}, brig.IO{})
		a.call("runs", err)
	})
}

func produceMaximalOutput(ctx context.Context, a *attacker) {
	a.repeatConcurrently(ctx, 10, func(ctx context.Context, _ int) {
		cmd := a.program("printer")
		cmd.Timeout = 5 * time.Second
		_, err := a.member.Exec(ctx, "one", cmd, brig.IO{})
		a.call("executions", err)
	})
}

func startUnreadExecs(ctx context.Context, a *attacker) {
	body := []byte(`{"command":["sh","-c","exec yes xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"],"timeout_ms":600000,"stream":true}`)
	header := fmt.Sprintf("Accept: application/x-ndjson\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	a.holdStreams(ctx, 20, func(ctx context.Context, _ int) (net.Conn, error) {
		return a.openStream(ctx, a.Member, http.MethodPost, "/v1/sandboxes/one/exec", header, body)
	})
}

func writeManyFiles(ctx context.Context, a *attacker) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 64<<20/16)
	a.repeatConcurrently(ctx, 8, func(ctx context.Context, i int) {
		p := brig.Path{Name: fmt.Sprintf("/workspace/f%d", i)}
		_, err := a.member.Files("one").Write(ctx, p, brig.FileWrite{}, bytes.NewReader(content))
		if a.call("files written", err); err != nil {
			sleep(ctx, 100*time.Millisecond)
			return
		}
		_, r, err := a.member.Files("one").Read(ctx, p, 0, -1)
		if err == nil {
			_, err = io.Copy(io.Discard, r)
			r.Close()
		}
		a.call("files read", err)
	})
}

func churn(ctx context.Context, a *attacker) {
	a.repeatConcurrently(ctx, abuseSandboxes, func(ctx context.Context, i int) {
		name := fmt.Sprintf("box-%d", i)
		err := a.createSandbox(ctx, name, brig.Spec{})
		if a.call("sandboxes", err); err == nil {
			a.call("removals", a.member.Remove(ctx, name))
		}
	})
}

// writeAuditLines creates audit records of accepted and rejected changes.
func writeAuditLines(ctx context.Context, a *attacker) {
	a.repeatConcurrently(ctx, 16, func(ctx context.Context, i int) {
		name := fmt.Sprintf("w%d", i)
		_, err := a.member.CreateWorkspace(ctx, name)
		a.call("workspaces", err)
		a.call("removals", a.member.RemoveWorkspace(ctx, name))
		a.get(ctx, http.MethodDelete, "/v1/sandboxes/"+strings.Repeat("n", 63), a.Member, "")
	})
}
