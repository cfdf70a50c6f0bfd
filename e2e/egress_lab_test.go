package e2e

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

// Addresses in the lab. The egress rules allow only good.
const (
	good     = "203.0.113.5"     // "the internet"
	evilAddr = "203.0.113.66"    // another address on the internet
	own      = "203.0.113.99"    // a public address of the host itself
	nameOne  = "203.0.113.53:53" // the address of the authoritative name server
)

// near lists the sinks on the host itself; the other sinks are behind the router.
var near = []string{own, "127.0.0.1", "127.0.0.2", "::1"}

// sinks lists addresses that no traffic of a sandbox may reach.
var sinks = []string{
	evilAddr, own, "8.8.8.8", "169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "192.0.0.192",
	"10.0.0.1", "172.16.0.1", "192.168.7.7", "100.64.0.9", "127.0.0.1", "127.0.0.2", "198.19.0.1", "192.88.99.1",
	"::1", "fd00:ec2::254", "fd00::7", "fec0::1", "64:ff9b::a00:1", "2002:a00:1::1", "2001:db8::66",
}

var sinkPorts = []int{22, 53, 80, 443, 2744}

// runInLab reruns the test in a new network namespace that contains only the lab, and reports the
// result. It returns true inside the lab.
func runInLab(t *testing.T) bool {
	t.Helper()
	return runApart(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET})
}

// runWithOwnMounts reruns the test in a new mount namespace, whose mount table only the test and
// its child processes change, and reports the result. It returns true in the namespace.
func runWithOwnMounts(t *testing.T) bool {
	t.Helper()
	return runApart(t, &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}) // also makes all mounts private
}

// runApart reruns the test in a process with the given attributes, and reports the result. It
// returns true in that process.
func runApart(t *testing.T, attr *syscall.SysProcAttr) bool {
	t.Helper()
	needRoot(t)
	if os.Getenv("BRIG_LAB") != "" {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1")
	cmd.Env = append(os.Environ(), "BRIG_LAB=1")
	cmd.SysProcAttr = attr
	out, err := cmd.CombinedOutput()
	for _, m := range regexp.MustCompile(`(?m)^\s+--- (PASS|FAIL|SKIP): \S+?/(\S+)`).FindAllStringSubmatch(string(out), -1) {
		t.Run(m[2], func(t *testing.T) {
			if m[1] != "PASS" {
				t.Errorf("it did not pass in the lab")
			}
		})
	}
	if err != nil {
		t.Errorf("in the lab: %v\n%s", err, out)
	}
	return false
}

// lab simulates the network outside the host that sandboxes might reach.
type lab struct {
	t *testing.T

	mu      sync.Mutex
	zone    map[string][]netip.Addr
	queries map[string]int // queries that reached the name server
	turn    int
	opened  map[string]int // "address:port" -> connections, or datagrams, that arrived
	bytes   map[string]int
	wire    map[string]int // observed packets to an address, of any protocol
	ns      string         // the namespace behind the router
}

// behindRouter runs f with its thread in the network namespace behind the router: a socket
// belongs to the namespace in which it is created.
func (l *lab) behindRouter(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	here, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer here.Close()
	there, err := os.Open("/run/netns/" + l.ns)
	if err != nil {
		return err
	}
	defer there.Close()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		return err
	}
	return errors.Join(f(), unix.Setns(int(here.Fd()), unix.CLONE_NEWNET))
}

// listen listens at an address of the lab on TCP and UDP.
func (l *lab) listen(addr string, port int) (ln net.Listener, pc net.PacketConn) {
	l.t.Helper()
	at := net.JoinHostPort(addr, fmt.Sprint(port))
	open := func() (err error) {
		if ln, err = net.Listen("tcp", at); err != nil {
			return err
		}
		pc, err = net.ListenPacket("udp", at)
		return err
	}
	err := error(nil)
	if slices.Contains(near, addr) {
		err = open()
	} else {
		err = l.behindRouter(open)
	}
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { ln.Close(); pc.Close() })
	return ln, pc
}

func newEgressLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{t: t, zone: map[string][]netip.Addr{}, queries: map[string]int{}, opened: map[string]int{}, bytes: map[string]int{}, wire: map[string]int{}}
	// The time makes the name unique: an interrupted run with the same process ID may have left
	// its namespace behind.
	l.ns = fmt.Sprintf("brig-lab-%d-%x", os.Getpid(), time.Now().UnixNano())
	run(t, "ip", "netns", "add", l.ns)
	onCleanup(t, func() { _ = exec.Command("ip", "netns", "delete", l.ns).Run() })
	there := func(argv ...string) { run(t, append([]string{"ip", "-n", l.ns}, argv...)...) }
	run(t, "ip", "link", "set", "lo", "up")
	run(t, "ip", "addr", "add", own+"/32", "dev", "lo")
	run(t, "ip", "link", "add", "up0", "type", "veth", "peer", "name", "down0", "netns", l.ns)
	run(t, "ip", "addr", "add", "10.255.255.2/30", "dev", "up0")
	run(t, "ip", "addr", "add", "fd99::2/64", "dev", "up0", "nodad")
	run(t, "ip", "link", "set", "up0", "up")
	there("link", "set", "lo", "up")
	there("addr", "add", "10.255.255.1/30", "dev", "down0")
	there("addr", "add", "fd99::1/64", "dev", "down0", "nodad")
	there("link", "set", "down0", "up")
	run(t, "ip", "route", "add", "default", "via", "10.255.255.1")
	run(t, "ip", "-6", "route", "add", "default", "via", "fd99::1")
	for _, a := range append([]string{good, "203.0.113.53"}, sinks...) {
		bits := "/32"
		if strings.Contains(a, ":") {
			bits = "/128"
		}
		if !slices.Contains(near, a) {
			there("addr", "add", a+bits, "dev", "lo", "nodad")
		}
	}
	for _, a := range sinks {
		for _, p := range sinkPorts {
			l.sink(a, p)
		}
	}
	l.serveNames()
	l.watch()
	return l
}

func run(t *testing.T, argv ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%q: %v: %s", argv, err, out)
	}
}

// sink counts the traffic that arrives at an address and port, over TCP and
// UDP.
func (l *lab) sink(addr string, port int) {
	l.t.Helper()
	at := net.JoinHostPort(addr, fmt.Sprint(port))
	ln, pc := l.listen(addr, port)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go l.drain(at, c)
		}
	}()
	go func() {
		b := make([]byte, 2000)
		for {
			n, _, err := pc.ReadFrom(b)
			if err != nil {
				return
			}
			l.count(at, n)
		}
	}()
}

func (l *lab) drain(at string, c net.Conn) {
	defer c.Close()
	l.count(at, 0)
	fmt.Fprint(c, "sink")
	b := make([]byte, 2000)
	for {
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		n, err := c.Read(b)
		l.mu.Lock()
		l.bytes[at] += n
		l.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (l *lab) count(at string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.opened[at]++
	l.bytes[at] += n
}

// serveNames runs the lab's authoritative name server.
func (l *lab) serveNames() {
	_, pc := l.listen("203.0.113.53", 53)
	go func() {
		b := make([]byte, 2000)
		for {
			n, from, err := pc.ReadFrom(b)
			if err != nil {
				return
			}
			if out := l.respond(b[:n]); out != nil {
				_, _ = pc.WriteTo(out, from)
			}
		}
	}()
}

func (l *lab) respond(q []byte) []byte {
	var m dnsmessage.Message
	if m.Unpack(q) != nil || len(m.Questions) != 1 {
		return nil
	}
	name := strings.ToLower(strings.TrimSuffix(m.Questions[0].Name.String(), "."))
	m.Response, m.Authoritative, m.Additionals = true, true, nil
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queries[name]++
	addrs, ok := l.zone[name]
	if !ok {
		m.RCode = dnsmessage.RCodeNameError
	}
	if strings.HasPrefix(name, "rebind") && len(addrs) > 0 && m.Questions[0].Type == dnsmessage.TypeA {
		l.turn++
		addrs = addrs[l.turn%len(addrs):][:1]
	}
	for _, a := range addrs {
		head := dnsmessage.ResourceHeader{Name: m.Questions[0].Name, Class: dnsmessage.ClassINET}
		if a.Is4() && m.Questions[0].Type == dnsmessage.TypeA {
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.AResource{A: a.As4()}})
		} else if a.Is6() && m.Questions[0].Type == dnsmessage.TypeAAAA {
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
	out, err := m.Pack()
	if err != nil {
		return nil
	}
	return out
}

// watch counts packets to sinks on every interface, including sinks without a listener.
func (l *lab) watch() {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, int(binary.NativeEndian.Uint16([]byte{unix.ETH_P_ALL >> 8, unix.ETH_P_ALL})))
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { unix.Close(fd) })
	go func() {
		b := make([]byte, 100)
		for {
			n, _, err := unix.Recvfrom(fd, b, 0)
			if err != nil {
				return
			}
			if n < 40 {
				continue
			}
			var to netip.Addr
			switch b[0] >> 4 {
			case 4:
				to = netip.AddrFrom4([4]byte(b[16:20]))
			case 6:
				to = netip.AddrFrom16([16]byte(b[24:40]))
			}
			l.mu.Lock()
			l.wire[to.String()]++
			l.mu.Unlock()
		}
	}()
}

// newArrivals returns the forbidden traffic that has arrived since the previous
// call.
func (l *lab) newArrivals() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for at, n := range l.opened {
		out = append(out, fmt.Sprintf("%s: %d connections, %d bytes", at, n, l.bytes[at]))
	}
	for to, n := range l.wire {
		// The test itself connects to its server over loopback.
		if slices.Contains(sinks, to) && to != "127.0.0.1" {
			out = append(out, fmt.Sprintf("%s: %d packets", to, n))
		}
	}
	for name, n := range l.queries {
		if !strings.HasSuffix(name, "ok.test") {
			out = append(out, fmt.Sprintf("%s was asked for %d times", name, n))
		}
	}
	clear(l.opened)
	clear(l.bytes)
	clear(l.wire)
	clear(l.queries)
	return out
}

// awaitArrivals waits until forbidden traffic arrives. It is for controls that send such traffic.
func (l *lab) awaitArrivals() []string {
	for end := time.Now().Add(promptTimeout); ; time.Sleep(10 * time.Millisecond) {
		if got := l.newArrivals(); len(got) > 0 || time.Now().After(end) {
			return got
		}
	}
}

func (l *lab) name(name string, addrs ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range addrs {
		l.zone[name] = append(l.zone[name], netip.MustParseAddr(a))
	}
}

// resolver returns a resolver that uses the lab's name server.
func (l *lab) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", nameOne)
	}}
}

// serve calls f for each connection to the good address.
func (l *lab) serve(port int, f func(net.Conn)) {
	l.t.Helper()
	ln, _ := l.listen(good, port)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); f(c) }()
		}
	}()
}

// respond responds to any request with "good" and the request's length.
func respond(c net.Conn) {
	b := make([]byte, 4096)
	_ = c.SetReadDeadline(time.Now().Add(2 * time.Second))
	n, _ := c.Read(b)
	fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\ngood %d", len(bytes.TrimSpace(b[:n])))
}
