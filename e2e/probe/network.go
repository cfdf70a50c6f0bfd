package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// processes lists the other processes.
func processes(f facts) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		f["processes"] = errnoOf(err)
		return
	}
	var names []string
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		name := filepath.Base(strings.TrimRight(strings.SplitN(string(b), "\x00", 2)[0], "\x00"))
		switch pid {
		case 1:
			name += " (init)"
		case os.Getpid():
			name += " (self)"
		}
		names = append(names, name)
	}
	sort.Strings(names)
	f["processes"] = strings.Join(names, ", ")
}

// initProcess tries to inspect the agent.
func initProcess(f facts) {
	for _, name := range []string{"root", "cwd", "exe", "fd/0", "fd/3", "ns/net"} {
		_, err := os.Readlink("/proc/1/" + name)
		f["init.readlink."+name] = errnoOf(err)
	}
	for _, name := range []string{"environ", "maps", "mem", "auxv", "root/", "cwd/", "fd/0", "io", "stack", "syscall"} {
		fd, err := unix.Open("/proc/1/"+name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err == nil {
			var b [1]byte
			// Some files can be opened by every user, but cannot be read or are
			// empty.
			if n, rerr := unix.Read(fd, b[:]); rerr != nil {
				err = rerr
			} else if n == 0 {
				err = fmt.Errorf("empty")
			}
			unix.Close(fd)
		}
		f["init.open."+name] = errnoOf(err)
	}
}

// unixSockets lists the named sockets, and tries to connect to well-known
// sockets that hosts have.
func unixSockets(f facts) {
	b, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		f["unix"] = errnoOf(err)
	}
	var names []string
	for i, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		if w := strings.Fields(line); i > 0 && len(w) > 7 {
			names = append(names, w[7])
		}
	}
	sort.Strings(names)
	f["unix.named"] = strings.Join(names, " ")
	for _, name := range []string{"/var/run/docker.sock", "/run/dbus/system_bus_socket", "@/tmp/.X11-unix/X0", "@/containerd-shim"} {
		c, err := net.DialTimeout("unix", name, time.Second)
		if err == nil {
			c.Close()
		}
		f["unix.dial."+name] = errnoOf(err)
	}
}

func network(f facts) {
	ifaces, err := net.Interfaces()
	if err != nil {
		f["net.interfaces"] = errnoOf(err)
	}
	for _, i := range ifaces {
		addrs, _ := i.Addrs()
		f["net.interface."+i.Name] = fmt.Sprint(i.Flags, addrs)
	}
	for _, name := range []string{"/proc/net/route", "/proc/net/ipv6_route", "/proc/net/arp", "/proc/net/tcp"} {
		b, err := os.ReadFile(name)
		if err != nil {
			b = []byte(errnoOf(err))
		}
		f["net.text."+name] = strings.Join(strings.Fields(string(b)), " ")
	}
	for _, target := range []string{
		"169.254.169.254:80", "[fd00:ec2::254]:80", "100.100.100.200:80", "168.63.129.16:80", "10.0.0.1:80",
		"192.0.2.1:443", "[2001:db8::1]:443", "127.0.0.1:22", "[::1]:22", "127.0.0.1:2744",
	} {
		c, err := net.DialTimeout("tcp", target, 300*time.Millisecond)
		if err == nil {
			c.Close()
		}
		f["net.tcp."+target] = errnoOf(err)
	}
	for _, target := range []string{"169.254.169.254:53", "192.0.2.1:53", "[2001:db8::1]:53"} {
		c, err := net.Dial("udp", target)
		if err == nil {
			_, err = c.Write([]byte("x"))
			c.Close()
		}
		f["net.udp."+target] = errnoOf(err)
	}
	_, err = net.LookupHost("example.test")
	f["net.lookup"] = strconv.FormatBool(err == nil)
}

// families tries to create sockets of various families and types.
func families(f facts) {
	for name, s := range map[string][3]int{
		"unix": {unix.AF_UNIX, unix.SOCK_STREAM, 0}, "inet.tcp": {unix.AF_INET, unix.SOCK_STREAM, 0},
		"inet6.tcp": {unix.AF_INET6, unix.SOCK_STREAM, 0}, "inet.raw.icmp": {unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP},
		"inet.dgram.icmp": {unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP}, "inet.sctp": {unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP},
		"packet": {unix.AF_PACKET, unix.SOCK_RAW, 0x0300}, "packet.dgram": {unix.AF_PACKET, unix.SOCK_DGRAM, 0x0300},
		"vsock": {unix.AF_VSOCK, unix.SOCK_STREAM, 0}, "alg": {unix.AF_ALG, unix.SOCK_SEQPACKET, 0},
		"netlink.route": {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE}, "netlink.audit": {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT},
		"netlink.netfilter": {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER}, "netlink.uevent": {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT},
		"netlink.xfrm": {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_XFRM}, "netlink.generic": {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_GENERIC},
		"netlink.diag": {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_INET_DIAG}, "netlink.crypto": {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_CRYPTO},
		"bluetooth": {unix.AF_BLUETOOTH, unix.SOCK_RAW, 0}, "can": {unix.AF_CAN, unix.SOCK_RAW, 1}, "tipc": {unix.AF_TIPC, unix.SOCK_STREAM, 0},
		"xdp": {unix.AF_XDP, unix.SOCK_RAW, 0}, "rds": {unix.AF_RDS, unix.SOCK_SEQPACKET, 0}, "key": {unix.AF_KEY, unix.SOCK_RAW, 2},
	} {
		fd, err := unix.Socket(s[0], s[1]|unix.SOCK_CLOEXEC, s[2])
		if err == nil {
			unix.Close(fd)
		}
		f["socket."+name] = errnoOf(err)
	}
}
