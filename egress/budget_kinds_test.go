package egress

import (
	"crypto/sha1"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/testenv"
)

// awaitStable waits until the result of f does not change for a second.
func awaitStable(f func() int64) (last int64) {
	last = -1
	for same, tries := 0, 0; same < 10 && tries < 600; tries++ {
		if now := f(); now != last {
			last, same = now, 0
		} else {
			same++
		}
		time.Sleep(100 * time.Millisecond)
	}
	return last
}

func (b *budget) inUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// Incomplete client hellos, and WebSockets whose hosts send long messages
// without an end, use no more server memory than the sandbox's limit, and
// release all of it. The control has no limit on memory or handshakes. The
// guests and the host are in this process, so their memory is counted, too.
func TestConnectionMemoryIsCharged(t *testing.T) {
	message := func(w http.ResponseWriter, r *http.Request) {
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		sum := sha1.Sum([]byte(r.Header.Get("Sec-Websocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
		fmt.Fprintf(buf, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
			base64.StdEncoding.EncodeToString(sum[:]))
		head := binary.BigEndian.AppendUint64([]byte{0x82, 127}, 1<<40)
		_, _ = buf.Write(head)
		junk := make([]byte, 16<<10)
		for range 4 * maxHeld / len(junk) {
			if _, err := buf.Write(junk); err != nil {
				return
			}
		}
		_ = buf.Flush()
		_, _ = io.Copy(io.Discard, conn)
	}
	for _, c := range []struct {
		name  string
		tries int
		begin func(*lab, net.Conn)
	}{
		{"TLS", 300, func(l *lab, c net.Conn) {
			// One message in records of the maximum length.
			for i := range 4 {
				record := append([]byte{handshake, 3, 1, 0x40, 0}, make([]byte, 16<<10)...)
				if i == 0 {
					copy(record[5:], []byte{1, 0, 0xff, 0xf0})
				}
				if i == 3 {
					record = record[:len(record)/2]
				}
				if _, err := c.Write(record); err != nil {
					return
				}
			}
		}},
		{"WebSocket", 150, func(l *lab, c net.Conn) {
			guest := tls.Client(c, &tls.Config{ServerName: labHost, RootCAs: l.trust(), NextProtos: []string{"http/1.1"}})
			fmt.Fprintf(guest, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", labHost)
			_, _ = io.Copy(io.Discard, guest)
		}},
	} {
		take := func(t *testing.T, limit int64, handshakes int) (peak, charged, remaining int64) {
			l := newLab(t, true, http.HandlerFunc(message))
			l.budget, l.handshakeSlots = newBudget(limit), make(chan struct{}, handshakes)
			l.keys = []Secret{key()}
			before := usedMemory()
			var all sync.WaitGroup
			for range c.tries {
				conn := l.connect()
				all.Go(func() { c.begin(l, conn) })
			}
			charged = awaitStable(l.budget.inUse)
			peak = usedMemory() - before
			l.stop()
			l.over.Wait()
			l.server.CloseClientConnections()
			all.Wait()
			remaining = awaitStable(l.budget.inUse)
			return peak, charged, remaining
		}
		t.Run(c.name, func(t *testing.T) {
			if testenv.RaceEnabled { // the detector changes the memory, and needs few tries
				c.tries /= 10
				_, charged, remaining := take(t, DefaultMemory, maxConcurrentHandshakes)
				if charged == 0 || charged > DefaultMemory || remaining > 64<<10 {
					t.Errorf("%d KiB charged, %d KiB charged after", charged>>10, remaining>>10)
				}
				return
			}
			peak, charged, remaining := take(t, DefaultMemory, maxConcurrentHandshakes)
			t.Logf("%d tries: %d KiB, %d KiB charged", c.tries, peak>>10, charged>>10)
			if charged > DefaultMemory || remaining > 64<<10 || peak > DefaultMemory+4<<20 {
				t.Errorf("%d KiB at most, %d KiB charged, %d KiB charged after", peak>>10, charged>>10, remaining>>10)
			}
			free, _, _ := take(t, 1<<40, c.tries)
			t.Logf("control: %d KiB", free>>10)
			if free < 3*peak || free < DefaultMemory {
				t.Errorf("control: without a bound they take %d KiB", free>>10)
			}
		})
	}
}

// DNS connections are counted and charged, the size of each query is limited,
// and a DNS server that does not answer blocks only few connections at the same
// time.
func TestDNSMemoryIsCharged(t *testing.T) {
	l := newWorld(t, allowHosts("*.test"))
	for range maxFlows + 40 {
		c, err := l.dial(brig.UplinkGateway, dnsPort)
		if err != nil {
			break
		}
		_, _ = c.Write([]byte{15, 255, 0, 0}) // the length of a query that is never sent
		t.Cleanup(func() { c.Close() })
	}
	l.Session.mu.Lock()
	flows := len(l.flows)
	l.Session.mu.Unlock()
	if used := l.budget.inUse(); flows > maxFlows || used > DefaultMemory || used < int64(flows)*flowCost(narrowBuffer) {
		t.Errorf("%d connections, %d KiB", flows, used>>10)
	}
	before := usedMemory()
	names := 20_000
	if testenv.RaceEnabled {
		names = 2 * maxNames
	}
	for i := range names {
		if _, ok := l.lookupQuiet(fmt.Sprintf("n%d.test.", i)); !ok {
			t.Fatal("no answer")
		}
	}
	if n := usedMemory() - before; n > 4<<20 || len(l.names.byName) > maxNames {
		t.Errorf("%d names take %d KiB", len(l.names.byName), n>>10)
	}
}

// lookupQuiet resolves a name without the uplink.
func (l *world) lookupQuiet(name string) ([]byte, bool) {
	q := dnsmessage.Message{Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
	b, err := q.Pack()
	out := l.answerDNS(b)
	return out, err == nil && out != nil
}
