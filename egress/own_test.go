package egress

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/hostaddr"
)

// A sandbox can reach an address of this host only if an operator's rule or the operator's list
// contains exactly that address. This holds for every form of the address.
func TestOwnAddressIsReachableOnlyByExactRule(t *testing.T) {
	const own = "203.0.113.99"
	for _, c := range []struct {
		addr, cidr, permitted string
		operator, want        bool
	}{
		{addr: own},
		{addr: own, cidr: own},
		{addr: own, cidr: "203.0.113.0/24", operator: true},
		{addr: own, cidr: own, permitted: "203.0.113.0/24"},
		{addr: own, cidr: own, operator: true, want: true},
		{addr: own, cidr: own, permitted: own, want: true},
		{addr: own, cidr: "203.0.113.0/24", permitted: own},
		{addr: "::ffff:" + own, cidr: own},
		{addr: "::ffff:" + own, cidr: own, operator: true, want: true},
		{addr: "64:ff9b::" + own, cidr: "64:ff9b::/96", permitted: "64:ff9b::/96"},
		{addr: "64:ff9b::" + own, cidr: "64:ff9b::" + own, permitted: "64:ff9b::/96"},
		{addr: "64:ff9b::" + own, cidr: "64:ff9b::/96", operator: true},
		{addr: "64:ff9b::" + own, cidr: "64:ff9b::" + own, operator: true, want: true},
		{addr: "64:ff9b::10.0.0.1", cidr: "64:ff9b::/96", operator: true},
		{addr: "64:ff9b::203.0.113.5", cidr: "64:ff9b::/96", permitted: "64:ff9b::/96", want: true}, // an address of another host
		{addr: "2002:cb00:7163::1", cidr: "2002::/16", operator: true},
		{addr: "2002:cb00:7105::1", cidr: "2002::/16", operator: true, want: true},
		{addr: "2001:db8::5efe:" + own, cidr: "2001:db8::/32", operator: true},
		{addr: "203.0.113.5", want: true},
		{addr: "127.0.0.1", cidr: "127.0.0.0/8", operator: true, want: true},
		{addr: "127.0.0.1", cidr: "127.0.0.0/8", permitted: "127.0.0.0/8", want: true},
		{addr: "127.0.0.1", cidr: "127.0.0.0/8"},
	} {
		rules := *allowHosts("own.test")
		if c.cidr != "" {
			rules.Rules = append(rules.Rules, brig.EgressRule{CIDR: c.cidr})
		}
		rules.Operator = c.operator
		s := &Session{Options: Options{CheckOwnAddress: func(a netip.Addr) bool { return a.IsLoopback() || a == netip.MustParseAddr(own) }}}
		if c.permitted != "" {
			p, err := brig.ParseNetwork(c.permitted)
			if err != nil {
				t.Fatal(err)
			}
			s.Open = []netip.Prefix{p}
		}
		s.policy.Store(&policy{Egress: rules})
		a := netip.MustParseAddr(c.addr).Unmap()
		r := s.judgeAddress(a, 80)
		if (r == nil) != c.want {
			t.Errorf("a name at %s, rule %q, opened %q, of an operator %t: %v", c.addr, c.cidr, c.permitted, c.operator, r)
		}
		if c.cidr == "" {
			continue
		}
		if v, _ := s.judgeFlow(&flow{addr: a, port: 80}, s.currentSecrets); (v == brig.Allowed) != c.want {
			t.Errorf("the address %s, rule %q, opened %q, of an operator %t: %v", c.addr, c.cidr, c.permitted, c.operator, v)
		}
	}
}

// A rule that names an address of this host is refused for a member when it is
// submitted.
func TestRuleForOwnAddressIsRefusedForMember(t *testing.T) {
	own := func(a netip.Addr) bool { return a == netip.MustParseAddr("203.0.113.99") }
	permitted := []netip.Prefix{netip.MustParsePrefix("203.0.113.99/32")}
	if err := CheckOwnAddress(allowHosts("203.0.113.99"), own, nil); brig.KindOf(err) != brig.InvalidArgument || brig.AsError(err).Field != "egress.rules[0].cidr" {
		t.Error(err)
	}
	for _, rules := range []*brig.Egress{allowHosts("203.0.113.5"), allowHosts("203.0.113.0/24"), allowHosts("own.test")} {
		if err := CheckOwnAddress(rules, own, nil); err != nil {
			t.Errorf("%v: %v", rules, err)
		}
	}
	if err := CheckOwnAddress(allowHosts("203.0.113.99"), own, permitted); err != nil {
		t.Error(err)
	}
}

// The host is assigned an address after a rule for it was accepted, and after the sandbox has
// connected to that address elsewhere. From then on, the address is treated as this host's. The
// control does not check the host's addresses, and the connection succeeds.
func TestLaterHostAddressIsRefused(t *testing.T) {
	const inside = "BRIG_TEST_IN_A_NAMESPACE"
	if os.Getenv(inside) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestLaterHostAddressIsRefused$", "-test.v")
		cmd.Env = append(os.Environ(), inside+"=1")
		id := func(is int) []syscall.SysProcIDMap { return []syscall.SysProcIDMap{{HostID: is, Size: 1}} }
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET, UidMappings: id(os.Getuid()), GidMappings: id(os.Getgid()),
			Pdeathsig: syscall.SIGKILL,
		}
		out, err := cmd.CombinedOutput()
		if err != nil && cmd.ProcessState == nil {
			t.Skip("no network namespace can be made here: ", err)
		}
		if err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	const (
		host    = "203.0.113.7"
		routed  = "198.51.100.7" // from a local route, on no interface
		beyond  = "elsewhere"
		machine = "this machine"
	)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	link := func(name string) netlink.Link {
		t.Helper()
		l, err := netlink.LinkByName(name)
		must(err)
		must(netlink.LinkSetUp(l))
		return l
	}
	say := func(ln net.Listener, what string) {
		t.Cleanup(func() { ln.Close() })
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte(what))
			c.Close()
		}
	}
	lo := link("lo")
	must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "here"}, PeerName: "there"}))
	away, err := netlink.LinkByName("there")
	must(err)
	// Another host: a namespace with the other end of the veth pair.
	moved, ready := make(chan int), make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			ready <- err
			return
		}
		moved <- unix.Gettid()
		<-moved
		for _, a := range []string{host, routed} {
			l, err := netlink.LinkByName("there")
			if err == nil {
				err = netlink.LinkSetUp(l)
			}
			if err == nil {
				var addr *netlink.Addr
				addr, err = netlink.ParseAddr(a + "/24")
				if err == nil {
					err = netlink.AddrAdd(l, addr)
				}
			}
			if err != nil {
				ready <- err
				return
			}
		}
		ln, err := net.Listen("tcp4", "0.0.0.0:80")
		ready <- err
		if err == nil {
			say(ln, beyond)
		}
	}()
	select {
	case tid := <-moved:
		must(netlink.LinkSetNsPid(away, tid))
		moved <- 0
		must(<-ready)
	case err := <-ready:
		t.Fatal(err)
	}
	here := link("here")
	for _, a := range []string{"203.0.113.1/24", "198.51.100.1/24"} {
		addr, err := netlink.ParseAddr(a)
		must(err)
		must(netlink.AddrAdd(here, addr))
	}
	ln, err := net.Listen("tcp4", "0.0.0.0:80")
	must(err)
	go say(ln, machine)

	real := func(own func(netip.Addr) bool) *world {
		rules := allowHosts("host.test", "routed.test", host, routed)
		must(CheckOwnAddress(rules, own, nil)) // the engine's check when it accepts the rules
		l := newWorld(t, rules, func(o *Options) { o.CheckOwnAddress, o.Dial = own, nil })
		l.name("host.test", host)
		l.name("routed.test", routed)
		return l
	}
	names := []string{"host.test", "routed.test", host, routed}
	answers := func(l *world, name string) string {
		var c net.Conn
		var err error
		if a, isAddr := netip.ParseAddr(name); isAddr == nil {
			c, err = l.dial(a, 80)
		} else {
			c, err = l.connectName(name, 80)
		}
		if err != nil {
			return ""
		}
		defer c.Close()
		p := make([]byte, 100)
		n, _ := c.Read(p)
		return string(p[:n])
	}
	l := real(hostaddr.IsHost)
	control := real(func(netip.Addr) bool { return false })
	for _, name := range names {
		if got := answers(l, name); got != beyond {
			t.Fatalf("%s, of another machine, says %q", name, got)
		}
	}
	addr, err := netlink.ParseAddr(host + "/32")
	must(err)
	must(netlink.AddrAdd(lo, addr))
	local, err := netlink.ParseIPNet(routed + "/32")
	must(err)
	must(netlink.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: local, Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: netlink.SCOPE_HOST}))
	for _, name := range names {
		if got := answers(l, name); got != "" {
			t.Errorf("%s, of this machine by now, says %q", name, got)
		}
		if got := answers(control, name); got != machine {
			t.Errorf("the control: %s says %q", name, got)
		}
	}
	operator := *allowHosts(names...)
	operator.Operator = true
	l.Update(operator)
	for _, name := range names {
		if got := answers(l, name); got != machine {
			t.Errorf("%s, which an operator allows, says %q", name, got)
		}
	}
}

// Before each request, a flow checks the addresses of all its connections to the host, not only
// that of the last connection.
func TestKeptConnectionsAreChecked(t *testing.T) {
	var own atomic.Value
	own.Store(netip.Addr{})
	l := newWorld(t, allowHosts("two.test"), func(o *Options) { o.CheckOwnAddress = func(a netip.Addr) bool { return a == own.Load() } })
	f, _ := l.openFlow("two.test", netip.Addr{}, 443)
	defer l.finish(f)
	first, last := netip.MustParseAddr("203.0.113.5"), netip.MustParseAddr("203.0.113.6")
	var ends []net.Conn
	for _, a := range []netip.Addr{first, last} {
		ours, theirs := net.Pipe()
		f.keep(ours, a)
		f.setAddr(a)
		ends = append(ends, theirs)
	}
	isOpen := func(c net.Conn) bool {
		_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
		_, err := c.Read(make([]byte, 1))
		return isTimeout(err)
	}
	if err := l.recheck(f); err != nil || !isOpen(ends[0]) || !isOpen(ends[1]) {
		t.Errorf("control: nothing has changed, %v", err)
	}
	own.Store(first) // the machine was assigned the address
	if err := l.recheck(f); err == nil || isOpen(ends[0]) || !isOpen(ends[1]) {
		t.Errorf("%v, open: %t, %t", err, isOpen(ends[0]), isOpen(ends[1]))
	}
	if err := l.recheck(f); err != nil || len(f.kept) != 1 {
		t.Errorf("%v, %d are kept", err, len(f.kept))
	}
}
