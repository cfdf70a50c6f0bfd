package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// link tries to change the sandbox's network, to intercept the packets of its
// interface and to send forged packets.
func link() error {
	f := facts{}
	tryNetworkChanges(f, "", netlink(f, ""))
	for name, s := range map[string][3]int{
		"raw.udp": {unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_UDP}, "raw.any": {unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW},
		"raw6": {unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6}, "packet": {unix.AF_PACKET, unix.SOCK_RAW, 0x0300},
		"packet.dgram": {unix.AF_PACKET, unix.SOCK_DGRAM, 0x0008},
	} {
		fd, err := unix.Socket(s[0], s[1]|unix.SOCK_CLOEXEC, s[2])
		f[name] = errnoOf(err)
		unix.Close(fd)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	f["transparent"] = errnoOf(unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_TRANSPARENT, 1))
	f["freebind"] = errnoOf(unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_FREEBIND, 1))
	f["bind.other"] = errnoOf(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{198, 18, 0, 3}}))
	return tryNewNamespace(f)
}

// tryNewNamespace repeats the attempts in a new network namespace, in which it has
// all privileges, and with descriptors of the sandbox's namespace.
func tryNewNamespace(f facts) error {
	sock, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	ns, err := os.Open("/proc/self/ns/net")
	if err != nil {
		f["elsewhere"] = "no descriptor: " + errnoOf(err)
		return report(f)
	}
	files := []*os.File{os.NewFile(uintptr(sock), "netlink"), ns}
	mapped := syscall.SysProcAttr{
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	for _, attr := range []syscall.SysProcAttr{mapped, {}} { // not every user may map IDs
		attr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET
		cmd := exec.Command("/proc/self/exe", "link-elsewhere")
		cmd.ExtraFiles, cmd.SysProcAttr = files, &attr
		out, err := cmd.Output()
		if err != nil {
			f["elsewhere"] = errnoOf(err)
			continue
		}
		delete(f, "elsewhere")
		var there facts
		if err := json.Unmarshal(out, &there); err != nil {
			return err
		}
		maps.Copy(f, there)
		break
	}
	return report(f)
}

func linkElsewhere() error {
	const sock, ns = 3, 4
	f := facts{}
	// In the new namespace the attempts may succeed, which shows that they are
	// correct.
	tryNetworkChanges(f, "own.", netlink(f, "own."))
	// In the sandbox's namespace, the attempts must fail.
	f["home.address"] = errnoOf(sendNetlink(sock, addressOf(2)))
	f["home.mtu"] = errnoOf(sendNetlink(sock, mtuOf(2)))
	f["home.veth"] = errnoOf(sendNetlink(netlink(f, "own."), veth(ns)))
	f["home.setns"] = errnoOf(unix.Setns(ns, unix.CLONE_NEWNET))
	return report(f)
}

func netlink(f facts, where string) int {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	f[where+"netlink"] = errnoOf(err)
	return fd
}

func tryNetworkChanges(f facts, where string, nl int) {
	tun(f, where)
	f[where+"address"] = errnoOf(sendNetlink(nl, addressOf(indexOf("eth0"))))
	f[where+"mtu"] = errnoOf(sendNetlink(nl, mtuOf(indexOf("eth0"))))
	f[where+"route"] = errnoOf(sendNetlink(nl, message(unix.RTM_NEWROUTE, []byte{unix.AF_INET, 32, 0, 0, unix.RT_TABLE_MAIN, 0, 0, 1, 0, 0, 0, 0},
		attr(unix.RTA_DST, []byte{10, 0, 0, 1}), attr(unix.RTA_GATEWAY, []byte{198, 18, 0, 7}), attr(unix.RTA_OIF, word(indexOf("eth0"))))))
	f[where+"unlink"] = errnoOf(sendNetlink(nl, message(unix.RTM_DELLINK, ifinfo(indexOf("eth0")))))
}

// tun tries to attach to the sandbox's interface, and to create another one.
func tun(f facts, where string) {
	for name, flags := range map[string]uint16{"attach": unix.IFF_TUN | unix.IFF_NO_PI, "attach.tap": unix.IFF_TAP} {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			f[where+"tun."+name] = "not opened: " + errnoOf(err)
			continue
		}
		for _, iface := range []string{"eth0", "tun7"} {
			var request [40]byte
			copy(request[:], iface)
			binary.NativeEndian.PutUint16(request[16:], flags)
			_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TUNSETIFF, uintptr(unsafe.Pointer(&request)))
			runtime.KeepAlive(&request)
			if key := where + "tun." + name; errno == 0 || f[key] == "" {
				f[key] = errnoOf(errnoOrNil(errno))
			}
		}
		if where != "own." {
			unix.Close(fd) // in the new namespace it remains open for the next steps
		}
	}
}

func errnoOrNil(errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

// indexOf returns the index of an interface, or 99 if it does not exist.
func indexOf(name string) uint32 {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 99
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq(name)
	if err != nil || unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, req) != nil {
		return 99
	}
	return req.Uint32()
}

func word(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

func attr(kind uint16, value []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), value...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func message(kind uint16, parts ...[]byte) []byte {
	b := slices.Concat(append([][]byte{make([]byte, 16)}, parts...)...)
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], kind)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE)
	return b
}

func ifinfo(index uint32) []byte {
	return append(append(make([]byte, 4), word(index)...), make([]byte, 8)...)
}

func addressOf(index uint32) []byte {
	return message(unix.RTM_NEWADDR, []byte{unix.AF_INET, 32, 0, 0}, word(index), attr(unix.IFA_LOCAL, []byte{198, 18, 0, 9}))
}

func mtuOf(index uint32) []byte {
	return message(unix.RTM_NEWLINK, ifinfo(index), attr(unix.IFLA_MTU, word(1400)))
}

// veth returns a request for a pair of interfaces, one of them in another
// namespace.
func veth(ns uint32) []byte {
	peer := attr(1, append(ifinfo(0), attr(unix.IFLA_NET_NS_FD, word(ns))...)) // VETH_INFO_PEER
	info := append(attr(unix.IFLA_INFO_KIND, []byte("veth")), attr(unix.IFLA_INFO_DATA, peer)...)
	return message(unix.RTM_NEWLINK, ifinfo(0), attr(unix.IFLA_LINKINFO, info))
}

// sendNetlink sends a netlink request to the kernel and returns its error.
func sendNetlink(fd int, request []byte) error {
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	b := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, b, 0)
	if err != nil || n < 20 {
		return fmt.Errorf("%d bytes, %w", n, err)
	}
	if errno := -int32(binary.NativeEndian.Uint32(b[16:])); errno != 0 {
		return syscall.Errno(errno)
	}
	return nil
}
