// SPDX-License-Identifier: Apache-2.0

package netns_test

import (
	"bytes"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/sandbox"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

// patience is how long a thing may take that takes no time.
const patience = 30 * time.Second

func newNS(t *testing.T, settings ...netns.Setting) *netns.NS {
	t.Helper()
	ns, err := netns.New("test", settings...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	return ns
}

// loopback sets the namespace's loopback up.
func loopback(t *testing.T, ns *netns.NS) {
	t.Helper()
	lo, err := ns.Netlink().LinkByName("lo")
	if err == nil {
		err = ns.Netlink().LinkSetUp(lo)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestNewNamespaceIsEmptyAndItsOwn(t *testing.T) {
	a, b := newNS(t), newNS(t)
	links, err := a.Netlink().LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if l.Attrs().RawFlags&unix.IFF_UP != 0 {
			t.Errorf("%s is up", l.Attrs().Name)
		}
	}
	if inode(t, a) == inode(t, b) {
		t.Error("two new namespaces are the same")
	}
	if a.Name() != "test" {
		t.Errorf("it is called %q", a.Name())
	}
}

// inode tells namespaces apart.
func inode(t *testing.T, ns *netns.NS) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(ns.Fd(), &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

// Whatever happens in namespaces, no thread of the process stays in one.
func TestThreadsComeHome(t *testing.T) {
	var home unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &home); err != nil {
		t.Fatal(err)
	}
	problem := errors.New("problem")
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			ns := newNS(t)
			for range 20 {
				if err := ns.Do(func() error { return problem }); !errors.Is(err, problem) {
					t.Errorf("Do returned %v, want what its function returned", err)
				}
			}
		})
	}
	wg.Wait()
	threads, err := filepath.Glob("/proc/self/task/*/ns/net")
	if err != nil || len(threads) == 0 {
		t.Fatalf("no threads found: %v", err)
	}
	for _, path := range threads {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			continue // the thread ended meanwhile
		}
		if st.Ino != home.Ino {
			t.Errorf("%s is another namespace than the process's", path)
		}
	}
}

func TestDoRunsInside(t *testing.T) {
	ns := newNS(t)
	var st unix.Stat_t
	if err := ns.Do(func() error { return unix.Stat("/proc/thread-self/ns/net", &st) }); err != nil {
		t.Fatal(err)
	}
	if st.Ino != inode(t, ns) {
		t.Error("Do ran somewhere else")
	}
}

// Inside Do and WithMounts, another namespace can be entered, and they go on in their own afterwards.
func TestDoInsideDo(t *testing.T) {
	outer, inner := newNS(t), newNS(t)
	at := func() uint64 {
		var st unix.Stat_t
		if err := unix.Stat("/proc/thread-self/ns/net", &st); err != nil {
			t.Error(err)
		}
		return st.Ino
	}
	enter := func() error {
		err := inner.Do(func() error {
			if at() != inode(t, inner) {
				t.Error("the inner Do does not run in its namespace")
			}
			return nil
		})
		if at() != inode(t, outer) {
			t.Error("the thread is not in its namespace after the inner Do")
		}
		return err
	}
	if err := outer.Do(enter); err != nil {
		t.Error(err)
	}
	if err := outer.WithMounts(func() error { return nil }, enter); err != nil {
		t.Error(err)
	}
}

func TestDoWithoutANamespace(t *testing.T) {
	var none *netns.NS
	err := none.Do(func() error { return nil })
	if err == nil || !strings.Contains(err.Error(), "no network namespace") {
		t.Errorf("%v, want that there is none", err)
	}
}

func TestSocketsStayInside(t *testing.T) {
	ns := newNS(t)
	loopback(t, ns)
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		listener, err := ns.Listen(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		to := netip.MustParseAddrPort(listener.Addr().String())
		go func() {
			if c, err := listener.Accept(); err == nil {
				c.Write([]byte("hello"))
				c.Close()
			}
		}()
		from := netip.AddrPortFrom(to.Addr(), 0)
		c, err := ns.Dial(t.Context(), "tcp", from, to)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		got := make([]byte, 5)
		if _, err := c.Read(got); err != nil || string(got) != "hello" {
			t.Errorf("read %q, %v", got, err)
		}
		if other, err := newNS(t).Dial(t.Context(), "tcp", netip.AddrPort{}, to); err == nil {
			other.Close()
			t.Error("the listener is reachable from another namespace")
		}
	}
}

func TestDialFromAnAddress(t *testing.T) {
	ns := newNS(t)
	loopback(t, ns)
	server, err := ns.ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	to := netip.MustParseAddrPort(server.LocalAddr().String())
	c, err := ns.Dial(t.Context(), "udp", netip.MustParseAddrPort("127.0.0.7:4321"), to)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	server.SetReadDeadline(time.Now().Add(patience))
	if _, peer, err := server.ReadFrom(make([]byte, 8)); err != nil || peer.String() != "127.0.0.7:4321" {
		t.Errorf("seen as %v, %v; want 127.0.0.7:4321", peer, err)
	}
}

func TestSysctls(t *testing.T) {
	const key = "net.ipv4.tcp_orphan_retries"
	ns := newNS(t, netns.Setting{Key: key, Value: "3"})
	if got, err := ns.Sysctl(key); got != "3" || err != nil {
		t.Errorf("set at birth: %q, %v; want 3", got, err)
	}
	if got, err := newNS(t).Sysctl(key); got == "3" || err != nil {
		t.Errorf("another namespace has it too: %q, %v", got, err)
	}
	missing := netns.Setting{Key: "net.ipv4.no_such_thing", Value: "1"}
	err := ns.SetSysctls(missing)
	if want := "test: set net.ipv4.no_such_thing=1: no such file or directory"; !errors.Is(err, fs.ErrNotExist) ||
		err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	missing.Optional = true
	after := netns.Setting{Key: "net/ipv4/tcp_orphan_retries", Value: "4"}
	if err := ns.SetSysctls(missing, after); err != nil {
		t.Errorf("optional setting: %v", err)
	}
	if got, _ := ns.Sysctl(key); got != "4" {
		t.Errorf("what comes after a missing optional setting is %q, want 4", got)
	}
	if err := ns.SetSysctls(netns.Setting{Key: key, Value: "many"}); !errors.Is(err, unix.EINVAL) {
		t.Errorf("bad value: got %v, want %v", err, unix.EINVAL)
	}
}

func TestUnmetSettings(t *testing.T) {
	ns := newNS(t, netns.Setting{Key: "net.ipv4.tcp_orphan_retries", Value: "3"})
	differ := netns.Setting{Key: "net.ipv4.tcp_orphan_retries", Value: "1"}
	missing := netns.Setting{Key: "net.ipv4.no_such_thing", Value: "1"}
	got, err := ns.DifferingSettings([]netns.Setting{
		differ,
		{Key: "net.ipv4.tcp_orphan_retries", Value: "3"},
		missing,
		{Key: "net.ipv4.nor_this", Value: "1", Optional: true},
	})
	if err != nil || len(got) != 2 || got[0] != differ || got[1] != missing {
		t.Errorf("got %v, %v; want %v and %v", got, err, differ, missing)
	}
}

func TestRun(t *testing.T) {
	ns := newNS(t)
	var out bytes.Buffer
	cmd := exec.Command("readlink", "/proc/self/ns/net")
	cmd.Stdout = &out
	if err := ns.Run(cmd); err != nil {
		t.Fatal(err)
	}
	home, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(out.String()); got == home || !strings.HasPrefix(got, "net:[") {
		t.Errorf("the child ran in %s, the process in %s", got, home)
	}
}

func TestExchange(t *testing.T) {
	ns := newNS(t)
	// RTM_GETLINK about device 1, then one about a device that there is not: struct nlmsghdr, struct ifinfomsg.
	ask := func(seq, index byte) []byte {
		b := make([]byte, 32)
		b[0], b[4], b[6], b[8], b[20] = 32, unix.RTM_GETLINK, unix.NLM_F_REQUEST, seq, index
		return b
	}
	var types []byte
	err := ns.Exchange(append(ask(1, 1), ask(2, 99)...), func(datagram []byte) (bool, error) {
		types = append(types, datagram[4])
		return datagram[8] == 2, nil
	})
	if err != nil || !bytes.Equal(types, []byte{unix.RTM_NEWLINK, unix.NLMSG_ERROR}) {
		t.Errorf("answers of types %v, %v; want a link and an error", types, err)
	}
	problem := errors.New("problem")
	if err := ns.Exchange(ask(3, 1), func([]byte) (bool, error) { return false, problem }); !errors.Is(err, problem) {
		t.Errorf("got %v, want what the callback returned", err)
	}
}

func TestClose(t *testing.T) {
	ns := newNS(t)
	open := descriptors(t)
	more, err := netns.New("more")
	if err != nil {
		t.Fatal(err)
	}
	if err := more.Close(); err != nil {
		t.Fatal(err)
	}
	if got := descriptors(t); got != open {
		t.Errorf("%d descriptors are open after Close, %d before", got, open)
	}
	if err := more.Exchange(nil, nil); !errors.Is(err, unix.EBADF) {
		t.Errorf("Exchange after Close: %v, want %v", err, unix.EBADF)
	}
	if err := ns.Do(func() error { return nil }); err != nil {
		t.Errorf("another namespace is disturbed: %v", err)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
