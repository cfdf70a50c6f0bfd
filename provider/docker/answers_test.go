package docker

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/brig-run/brig/internal/testenv"
)

// hostile is an engine that responds to one path with write, and to all other
// paths like a real engine. It stops when its client disconnects, or after
// most bytes.
type hostile struct {
	suffix string
	write  func(w io.Writer) error
	raw    bool // write writes the whole HTTP response
}

const mostSent = 96 << 20

// start starts the engine and returns a provider that uses it.
func (h hostile) start(t *testing.T) *Provider {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Api-Version", "1.44")
		if !strings.HasSuffix(r.URL.Path, h.suffix) {
			_, _ = io.WriteString(w, `{"Id": "made"}`)
			return
		}
		var to io.Writer = w
		if h.raw {
			c, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = c.Close() }()
			to = c
		}
		for left := mostSent; left > 0; {
			n := &counted{w: to}
			if err := h.write(n); err != nil || n.n == 0 {
				return
			}
			left -= n.n
		}
	}))
	socket := filepath.Join(t.TempDir(), "engine")
	var err error
	if s.Listener, err = net.Listen("unix", socket); err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(s.Close)
	p := &Provider{Options: Options{Host: "unix://" + socket, DataDir: t.TempDir(), Log: slog.New(slog.DiscardHandler), Instance: "x"}, populating: make(chan struct{}, 1)}
	if err := p.connect(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.transport.base.CloseIdleConnections)
	return p
}

type counted struct {
	w io.Writer
	n int
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += n
	return n, err
}

// repeated returns a function that writes first once, and then again in an
// endless loop.
func repeated(first, again string) func(io.Writer) error {
	var once sync.Once
	block := []byte(strings.Repeat(again, max(1, 32<<10/len(again))))
	return func(w io.Writer) (err error) {
		once.Do(func() { _, err = io.WriteString(w, first) })
		if err == nil {
			_, err = w.Write(block)
		}
		return err
	}
}

// TestHostileEngineResponsesUseBoundedMemory verifies for every call that a response that is
// endless or has very many values is rejected, and that this takes a limited amount of memory. The
// control has no limits and accepts the same response.
func TestHostileEngineResponsesUseBoundedMemory(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	const bound = 96 << 20
	inspect := func(p *Provider) error {
		_, err := p.api.ContainerInspect(ctx, "made", client.ContainerInspectOptions{})
		return err
	}
	sweep := func(p *Provider) error { _, err := p.Sweep(ctx, nil); return err }
	for name, c := range map[string]struct {
		path, first, again string
		raw                bool
		call               func(*Provider) error
		control            bool // without limits, the response takes more memory than the bound
	}{
		"a long text":         {path: "/containers/made/json", first: `{"Id":"`, again: "x", call: inspect, control: true},
		"many small values":   {path: "/containers/made/json", first: `{"Mounts":[{}`, again: ",{}", call: inspect, control: true},
		"many names":          {path: "/containers/made/json", first: `{"Config":{"Labels":{"a":""`, again: `,"b":""`, call: inspect},
		"blanks":              {path: "/containers/made/json", first: `{`, again: " ", call: inspect},
		"many headers":        {path: "/containers/made/json", raw: true, first: "HTTP/1.1 200 OK\r\n", again: "A: b\r\n", call: inspect},
		"a long header":       {path: "/containers/made/json", raw: true, first: "HTTP/1.1 200 OK\r\nA: ", again: "b", call: inspect},
		"a long error":        {path: "/containers/made/json", raw: true, first: "HTTP/1.1 500 No\r\nContent-Type: application/json\r\n\r\n{\"message\":\"", again: "b", call: inspect},
		"many containers":     {path: "/containers/json", first: `[{}`, again: ",{}", call: sweep, control: true},
		"much in a container": {path: "/containers/json", first: `[{"Ports":[{}`, again: ",{}", call: sweep},
		"a long container":    {path: "/containers/json", first: `[{"Id":"`, again: "x", call: sweep},
		"the engine itself":   {path: "/info", first: `{"Warnings":[""`, again: `,""`, call: func(p *Provider) error { _, err := p.api.Info(ctx, client.InfoOptions{}); return err }, control: true},
		"an image":            {path: "/images/i/json", first: `{"RepoTags":[""`, again: `,""`, call: func(p *Provider) error { _, err := p.inspect(ctx, "i"); return err }, control: true},
		"a registry's answer": {path: "/distribution/i/json", first: `{"Platforms":[{}`, again: ",{}", call: func(p *Provider) error {
			_, err := p.api.DistributionInspect(ctx, "i", client.DistributionInspectOptions{})
			return err
		}},
		"what is used": {path: "/stats", first: `{"memory_stats":{"stats":{"a":1`, again: `,"b":1`, call: func(p *Provider) error {
			_, err := newInstance(p, "x", order{Container: "made"}).stats(ctx)
			return err
		}},
		"the end of a container": {path: "/wait", first: `{"Error":{"Message":"`, again: "x", call: func(p *Provider) error {
			got := p.api.ContainerWait(ctx, "made", client.ContainerWaitOptions{})
			select {
			case <-got.Result:
				return nil
			case err := <-got.Error:
				return err
			}
		}},
		"an event": {path: "/events", first: `{"Actor":{"ID":"`, again: "x", call: func(p *Provider) error {
			got := p.api.Events(ctx, client.EventsListOptions{})
			for {
				select {
				case <-got.Messages:
				case err := <-got.Err:
					return err
				}
			}
		}, control: true},
		"a pull": {path: "/images/create", first: `{"status":"`, again: "x", call: func(p *Provider) error {
			got, err := p.api.ImagePull(ctx, "i", client.ImagePullOptions{})
			if err == nil {
				err = got.Wait(ctx)
			}
			return err
		}},
		"a log":                   {path: "/logs", first: "\x01\x00\x00\x00\xff\xff\xff\xff", again: "x", call: func(p *Provider) error { return hostileLog(ctx, p) }},
		"the headers of a stream": {path: "/start", raw: true, first: "HTTP/1.1 101 UPGRADED\r\n", again: "A: b\r\n", call: func(p *Provider) error { _, err := p.transport.attach(ctx, p.api, "made"); return err }},
	} {
		t.Run(name, func(t *testing.T) {
			h := hostile{suffix: c.path, write: repeated(c.first, c.again), raw: c.raw}
			p := h.start(t)
			var unbounded func() error
			if c.control {
				unbounded = func() error {
					h.write = repeated(c.first, c.again)
					free := h.start(t)
					var err error
					if free.api, err = free.newClient(free.transport.base); err != nil {
						t.Fatal(err)
					}
					return c.call(free)
				}
			}
			testenv.CheckEndlessResponse(t, bound, func() error { return c.call(p) }, unbounded)
		})
	}
}

// TestLargeEngineResponsesAreAccepted verifies that a stream of complete values
// may be endless, and that a response may be as large as the responses of real
// engines.
func TestLargeEngineResponsesAreAccepted(t *testing.T) {
	p := hostile{suffix: "/events", write: repeated("", `{"Type":"container","Action":"oom","Actor":{"ID":"a","Attributes":{"quoted":"\"}]\\"}}}`+"\n")}.start(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got := p.api.Events(ctx, client.EventsListOptions{})
	values := 200_000 // 17 MB
	if testenv.RaceEnabled {
		values = 2_000
	}
	for range values {
		select {
		case <-got.Messages:
		case err := <-got.Err:
			t.Fatal(err)
		}
	}
	var list bytes.Buffer
	for i := range 2000 {
		fmt.Fprintf(&list, `,{"Id":"%064d","Names":["/brig-%d"],"Image":"python:3","Command":"a","Created":1,"Ports":[],"Labels":{"a":"b","c":"d","run.brig.instance":"x"},"State":"running","Status":"Up","HostConfig":{"NetworkMode":"none"},"NetworkSettings":{"Networks":{"none":{"IPAMConfig":null,"Links":null,"Aliases":null,"MacAddress":"","NetworkID":"x","EndpointID":"","Gateway":"","IPAddress":""}}},"Mounts":[{"Type":"volume","Name":"v","Source":"","Destination":"/d","Driver":"local","Mode":"z","RW":false,"Propagation":""}]}`, i, i)
	}
	list.WriteString("]")
	body := "[" + list.String()[1:]
	sent := false
	p = hostile{suffix: "/containers/json", write: func(w io.Writer) (err error) {
		if !sent {
			sent = true
			_, err = io.WriteString(w, body)
		}
		return err
	}}.start(t)
	if all, err := p.api.ContainerList(t.Context(), client.ContainerListOptions{}); err != nil || len(all.Items) != 2000 {
		t.Errorf("%d containers, %v", len(all.Items), err)
	}
}

// TestSlowResponseIsAborted verifies that a response that arrives one byte at
// a time is aborted after responseTimeout.
func TestSlowResponseIsAborted(t *testing.T) {
	before := responseTimeout
	responseTimeout = 300 * time.Millisecond
	defer func() { responseTimeout = before }()
	first := true
	p := hostile{suffix: "/containers/made/json", write: func(w io.Writer) error {
		text := " "
		if first {
			first, text = false, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{"
		}
		time.Sleep(20 * time.Millisecond)
		_, err := io.WriteString(w, text)
		return err
	}, raw: true}.start(t)
	if _, err := p.api.ContainerInspect(t.Context(), "made", client.ContainerInspectOptions{}); err == nil {
		t.Error("it has an answer")
	}
}

func hostileLog(ctx context.Context, p *Provider) error {
	i := newInstance(p, "x", order{Container: "made"})
	if err := os.MkdirAll(i.f.dir, 0o700); err != nil {
		return err
	}
	return i.copyLogOnce(ctx, false)
}
