package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// attack performs one attack that a sandbox must withstand.
func attack(name string, args []string) error {
	switch name {
	case "canary":
		return canary(args)
	case "processes":
		return children()
	case "files":
		return files()
	case "fill":
		return fill(args[0])
	case "inodes":
		return inodes(args[0], args[1])
	case "link":
		return link()
	case "link-elsewhere":
		return linkElsewhere()
	case "flood":
		return flood()
	case "swap":
		return swap(args[0], args[1])
	case "opens":
		return opens(args[0], args[1], args[2])
	}
	return fmt.Errorf("no such thing: %s", name)
}

// canary tries to read files of the host in every known way. It prints their
// content, so that the test can search the output for it.
func canary(names []string) error {
	prefixes := []string{"", "/proc/1/root", "/proc/1/cwd", "/proc/self/root", "/proc/self/cwd/../../../../..", "/mnt", "/dev/fd/3", "/proc/self/fd/0/.."}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err == nil {
			prefixes = append(prefixes, "/proc/"+e.Name()+"/root", "/proc/"+e.Name()+"/cwd")
			fds, _ := filepath.Glob("/proc/" + e.Name() + "/fd/*")
			prefixes = append(prefixes, fds...)
		}
	}
	for _, dev := range []string{"/dev/vda", "/dev/sda", "/dev/nvme0n1", "none"} {
		for _, kind := range []string{"ext4", "xfs", "9p", "overlay", "tmpfs", "virtiofs"} {
			_ = unix.Mount(dev, "/mnt", kind, 0, "")
		}
	}
	tries := 0
	for i, name := range names {
		for _, p := range prefixes {
			tries++
			show(p + name)
			link, hard := fmt.Sprintf("/tmp/link%d-%d", i, tries), fmt.Sprintf("/tmp/hard%d-%d", i, tries)
			if os.Symlink(p+name, link) == nil {
				show(link)
			}
			if os.Link(p+name, hard) == nil || unix.Linkat(unix.AT_FDCWD, p+name, unix.AT_FDCWD, hard, unix.AT_SYMLINK_FOLLOW) == nil {
				show(hard)
			}
		}
	}
	// File handles are numbers that can be guessed: 2 is usually the root of a
	// disk.
	for inode := range uint64(64) {
		handle := unix.NewFileHandle(1, []byte{byte(inode), 0, 0, 0, 0, 0, 0, 0})
		if fd, err := unix.OpenByHandleAt(unix.AT_FDCWD, handle, unix.O_RDONLY); err == nil {
			fmt.Println("opened by handle", inode)
			show(fmt.Sprintf("/proc/self/fd/%d%s", fd, names[0]))
		}
	}
	fmt.Println("tried", tries)
	return nil
}

func show(name string) {
	if b, err := os.ReadFile(name); err == nil {
		fmt.Printf("read %s: %q\n", name, b)
	}
}

// children starts processes until the kernel refuses.
func children() error {
	var started []*exec.Cmd
	defer func() {
		for _, c := range started {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	}()
	for range 2000 {
		c := exec.Command("/bin/sleep", "30")
		if err := c.Start(); err != nil {
			fmt.Println(len(started) > 0, errnoOf(err))
			return nil
		}
		started = append(started, c)
	}
	return errors.New("no limit of processes")
}

// files opens files until the kernel refuses.
func files() error {
	for n := range 1 << 21 {
		if _, err := unix.Open("/dev/null", unix.O_RDONLY, 0); err != nil {
			fmt.Println(n, errnoOf(err))
			return nil
		}
	}
	return errors.New("no limit of open files")
}

// fill writes to a file until the kernel refuses, and prints the number of
// bytes.
func fill(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	buf := bytes.Repeat([]byte{0xa5}, 1<<20)
	total := 0
	for {
		n, err := f.Write(buf)
		total += n
		if err != nil {
			fmt.Println(total, errnoOf(err))
			return nil
		}
	}
}

// inodes creates empty files for a while, or until the kernel refuses.
func inodes(dir, maxInodes string) error {
	limit, err := strconv.Atoi(maxInodes)
	if err != nil {
		return err
	}
	end := time.Now().Add(5 * time.Second)
	for n := range limit {
		if n%1000 == 0 && (os.MkdirAll(fmt.Sprintf("%s/%d", dir, n/1000), 0o755) != nil || time.Now().After(end)) {
			fmt.Println(n, "stopped")
			return nil
		}
		fd, err := unix.Open(fmt.Sprintf("%s/%d/%d", dir, n/1000, n), unix.O_CREAT|unix.O_WRONLY, 0o644)
		if err != nil {
			fmt.Println(n, errnoOf(err))
			return nil
		}
		unix.Close(fd)
	}
	fmt.Println(limit, "allowed")
	return nil
}

// flood repeatedly sends every signal to init for a second.
func flood() error {
	var sent, refused int
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		for sig := uintptr(1); sig < 65; sig++ {
			if sig == uintptr(unix.SIGKILL) || sig == uintptr(unix.SIGSTOP) {
				continue
			}
			if _, _, errno := unix.Syscall(unix.SYS_KILL, 1, sig, 0); errno != 0 {
				refused++
			} else {
				sent++
			}
			var info [128]byte
			_, _, _ = unix.Syscall(unix.SYS_RT_SIGQUEUEINFO, 1, sig, uintptr(unsafe.Pointer(&info)))
		}
	}
	fmt.Println(sent > 0, refused > 0)
	return nil
}
