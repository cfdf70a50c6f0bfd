package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/testenv"
)

// The environment variables of the process that runs the guests and the server.
const (
	guestsAddrEnv  = "BRIG_TEST_GUESTS_OF"    // the address of the inspector
	guestsModeEnv  = "BRIG_TEST_GUESTS_HOW"   // the host's protocol, and whether it answers
	guestsCountEnv = "BRIG_TEST_GUESTS_COUNT" // the number of requests
)

// usedMemory returns the memory of this process's heap and stacks after garbage collections no
// longer free memory. Objects of earlier tests may be released only after several collections, by
// finalizers and by goroutines that end.
func usedMemory() int64 {
	least := int64(math.MaxInt64)
	for same := 0; same < 3; {
		debug.FreeOSMemory()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if now := int64(m.HeapAlloc + m.StackInuse); now < least-4<<10 {
			least, same = now, 0
		} else {
			same++
		}
	}
	return least
}

// A guest makes 9,100 concurrent requests with large headers and endless bodies. The host does not
// respond, or the guest does not read the responses. The requests use no more server memory than
// the sandbox's limit, and all of it is released. During the attack, another sandbox is served. The
// guest and the host run in a separate process, so that this process has only the memory of the
// inspector. The control has no limit.
func TestMemoryOfInspectedRequestsIsLimited(t *testing.T) {
	if os.Getenv(guestsAddrEnv) != "" {
		runGuestProcess(t)
		return
	}
	requests := 9100
	if testenv.RaceEnabled { // enough to find data races
		requests = 500
	}
	for _, how := range []string{"h2 silent", "h2 talks", "http/1.1 silent", "http/1.1 talks"} {
		t.Run(how, func(t *testing.T) {
			peak, remaining := peakMemoryOf(t, how, DefaultMemory, requests)
			t.Logf("%d KiB at most, %d KiB after", peak>>10, remaining>>10)
			if peak > DefaultMemory+4<<20 || remaining > 4<<20 {
				t.Errorf("%d KiB at most, %d KiB after", peak>>10, remaining>>10)
			}
		})
	}
	t.Run("control", func(t *testing.T) {
		testenv.SkipWithRace(t, "it measures memory")
		peak, _ := peakMemoryOf(t, "h2 silent", 1<<40, 1000)
		t.Logf("%d KiB", peak>>10)
		if peak < 4*DefaultMemory {
			t.Errorf("without a bound 1,000 requests take %d KiB", peak>>10)
		}
	})
}

// peakMemoryOf returns the peak memory of this process under concurrent requests with the given
// limit in bytes, and the memory that is still used afterwards.
func peakMemoryOf(t *testing.T, how string, limit int64, requests int) (peak, remaining int64) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMemoryOfInspectedRequestsIsLimited$")
	cmd.Env = append(os.Environ(), guestsAddrEnv+"="+ln.Addr().String(), guestsModeEnv+"="+how, guestsCountEnv+"="+fmt.Sprint(requests))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer in.Close()
	scanner := bufio.NewScanner(out)
	next := func(what string) string {
		for scanner.Scan() {
			if word, rest, _ := strings.Cut(scanner.Text(), " "); word == what {
				return rest
			}
		}
		t.Fatalf("the guests did not say %q: %v", what, scanner.Err())
		return ""
	}
	server := next("server")
	pem, err := base64.StdEncoding.DecodeString(next("authority"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	sandbox := func(limit int64) *inspector {
		return &inspector{
			valuesSent: &sentValues{}, authority: &CA{}, now: time.Now, roots: roots,
			judge:   func(string, int, brig.Request) (brig.Verdict, int) { return brig.Allowed, 0 },
			secrets: func() []Secret { return nil },
			report:  func(Event) {},
			dial: func(ctx context.Context, _ string, _ int) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "tcp", server)
			},
			budget: newBudget(limit), handshakeSlots: make(chan struct{}, maxConcurrentHandshakes),
		}
	}
	attacked := sandbox(limit)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var serving sync.WaitGroup
	before := usedMemory()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { attacked.serve(ctx, c, labHost, 443, true) })
		}
	}()
	fmt.Fprintln(in, "go")
	counts := next("settled")
	peak = usedMemory() - before
	t.Logf("%s; %d KiB are charged", counts, attacked.budget.inUse()>>10)

	other := sandbox(DefaultMemory)
	a, b := tcpPair(t)
	serving.Go(func() { other.serve(ctx, b, labHost, 443, true) })
	conn := tls.Client(a, &tls.Config{InsecureSkipVerify: true, ServerName: labHost, NextProtos: []string{"http/1.1"}})
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	fmt.Fprintf(conn, "GET /good HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", labHost)
	if response, _ := io.ReadAll(conn); !strings.HasPrefix(string(response), "HTTP/1.1 200 ") {
		t.Errorf("another sandbox is answered %q", response)
	}
	a.Close()

	ln.Close()
	end()
	serving.Wait()
	remaining = usedMemory() - before
	charged := func() [2]int64 { return [2]int64{attacked.budget.inUse(), other.budget.inUse()} }
	for end := time.Now().Add(30 * time.Second); charged() != [2]int64{} && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond) // a goroutine of net/http still ends
	}
	if of := charged(); of != [2]int64{} {
		t.Errorf("%d bytes are still charged", of)
	}
	return peak, remaining
}

// runGuestProcess runs the guests and the server in a separate process.
func runGuestProcess(t *testing.T) {
	protocol, mood, _ := strings.Cut(os.Getenv(guestsModeEnv), " ")
	var requests int
	fmt.Sscan(os.Getenv(guestsCountEnv), &requests)
	var inside, refused atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/good" {
			return
		}
		inside.Add(1)
		for junk := make([]byte, 64<<10); mood == "talks"; {
			if _, err := w.Write(junk); err != nil {
				return
			}
		}
		<-r.Context().Done()
	}))
	world := &CA{}
	leaf, err := world.issueLeaf(labHost, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	server.TLS = &tls.Config{Certificates: []tls.Certificate{*leaf}, NextProtos: []string{protocol}}
	server.EnableHTTP2 = protocol == "h2"
	server.StartTLS()
	pem, err := world.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("server %s\nauthority %s\n", server.Listener.Addr(), base64.StdEncoding.EncodeToString(pem))
	in := bufio.NewScanner(os.Stdin)
	in.Scan()
	ctx := t.Context()
	head := strings.Repeat("x", 8<<10)
	for remaining := requests; remaining > 0; remaining -= maxStreams {
		n := min(remaining, maxStreams)
		go func() {
			raw, err := net.Dial("tcp", os.Getenv(guestsAddrEnv))
			if err != nil {
				refused.Add(int64(n))
				return
			}
			conn := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, ServerName: labHost, NextProtos: []string{"h2"}})
			guest, err := (&http2.Transport{DisableCompression: true}).NewClientConn(conn) //nolint:staticcheck // the standard library's client does not report the number of streams
			if err != nil {
				refused.Add(int64(n))
				return
			}
			for range n {
				go func() {
					body := io.MultiReader(strings.NewReader(strings.Repeat("b", 48<<10)), endlessBody{ctx})
					r, _ := http.NewRequestWithContext(ctx, "POST", "https://"+labHost+"/hang", body)
					r.Header.Set("X-Large", head)
					if res, err := guest.RoundTrip(r); err != nil || res.StatusCode != 200 {
						refused.Add(1)
					}
				}()
			}
		}()
	}
	for last, same, tries := int64(-1), 0, 0; same < 10 && tries < 200; time.Sleep(200 * time.Millisecond) {
		tries++
		if now := inside.Load() + refused.Load(); now != last {
			last, same = now, 0
		} else {
			same++
		}
	}
	fmt.Printf("settled %d of %d requests arrived, %d were refused\n", inside.Load(), requests, refused.Load())
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// endlessBody is a body that never ends.
type endlessBody struct{ ctx context.Context }

func (w endlessBody) Read([]byte) (int, error) {
	<-w.ctx.Done()
	return 0, io.EOF
}
