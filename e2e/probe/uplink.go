package main

import (
	"fmt"
	"net"
	"strconv"
	"time"
)

// pour sends datagrams of a size to an address for a while, as fast as it
// can, and prints how many.
func pour(to, size, seconds string) error {
	n, err := strconv.Atoi(size)
	if err != nil {
		return err
	}
	d, err := time.ParseDuration(seconds)
	if err != nil {
		return err
	}
	c, err := net.Dial("udp", to)
	if err != nil {
		return err
	}
	defer c.Close()
	b := make([]byte, n)
	sent, lost := 0, 0
	for end := time.Now().Add(d); time.Now().Before(end); {
		if _, err := c.Write(b); err != nil {
			lost++
			continue
		}
		sent++
	}
	fmt.Println(sent, lost)
	return nil
}

// drain counts the datagrams and bytes that come in answer to one, until none
// comes for a second.
func drain(to string) error {
	c, err := net.Dial("udp", to)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Write([]byte("go")); err != nil {
		return err
	}
	b := make([]byte, 1<<16)
	packets, size := 0, 0
	for {
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		n, err := c.Read(b)
		if err != nil {
			break
		}
		packets, size = packets+1, size+n
	}
	fmt.Println(packets, size)
	return nil
}
