// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/mdlayher/netlink"
	"github.com/ti-mo/conntrack"
	"github.com/ti-mo/netfilter"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/lab/program"
	"github.com/viplab/viplab/lab/netns"
)

// eventLimit is how long an event may take that the kernel sends at once, on the slowest of machines.
const eventLimit = 10 * time.Second

// runIn runs a program in the namespace; the error carries what it printed last.
func runIn(ctx context.Context, ns *netns.NS, input string, name string, args ...string) (string, error) {
	path, err := lookUp(name)
	if err != nil {
		return "", fmt.Errorf("%s is not installed", name)
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdin = strings.NewReader(input)
	cmd.Env = append(os.Environ(), "XTABLES_LOCKFILE=/dev/null") // the rules are in a namespace of their own
	return program.Output(cmd, ns.Run)
}

// refused makes an answer of a program's failure: it ran and said no, unless for want of permission.
func refused(err error) error {
	exit := (*exec.ExitError)(nil)
	if err == nil || !errors.As(err, &exit) || strings.Contains(strings.ToLower(err.Error()), "permi") {
		return err
	}
	return &lack{err.Error()}
}

func nftNAT(ctx context.Context, ns *netns.NS) (string, error) {
	_, err := runIn(ctx, ns, `table inet probe {
  chain in { type nat hook prerouting priority dstnat; ip daddr 192.0.2.1 tcp dport 80 dnat ip to 198.51.100.1:8080; }
  chain out { type nat hook postrouting priority srcnat; meta mark 1 masquerade fully-random; }
}`, "nft", "-f", "-")
	return "", refused(err)
}

func ipSet(ctx context.Context, ns *netns.NS) (string, error) {
	_, err := runIn(ctx, ns, "create probe hash:net\nadd probe 192.0.2.0/24\nadd probe 192.0.2.1 nomatch\n"+
		"create clients hash:ip timeout 60\n", "ipset", "restore")
	return "", refused(err)
}

// ipSetRule writes a rule that looks into a set and adds to it.
func ipSetRule(ctx context.Context, ns *netns.NS) (string, error) {
	if _, err := ipSet(ctx, ns); err != nil {
		return "", err
	}
	_, err := runIn(ctx, ns, `*nat
:PROBE - [0:0]
-A PROBE -m set --match-set clients src -j SET --add-set clients src --exist
COMMIT
`, "iptables-nft-restore", "--noflush")
	return "", refused(err)
}

// serviceRules are a table and the matches and targets in it that proxiers write.
var serviceRules = []struct{ name, table, rule string }{
	{"comment", "nat", "-m comment --comment probe"},
	{"addrtype", "nat", "-m addrtype --dst-type LOCAL"},
	{"statistic", "nat", "-m statistic --mode random --probability 0.5"},
	{"recent", "nat", "-m recent --name probe --rcheck --seconds 10 --reap"},
	{"mark", "nat", "-m mark ! --mark 0x4000/0x4000 -j MARK --or-mark 0x4000"},
	{"DNAT", "nat", "-p tcp -j DNAT --to-destination "},
	{"REDIRECT", "nat", "-p tcp -j REDIRECT --to-ports 1"},
	{"MASQUERADE --random-fully", "nat", "-j MASQUERADE --random-fully"},
	{"conntrack", "filter", "-m conntrack --ctstate INVALID,NEW -j DROP"},
	{"REJECT", "filter", "-p tcp -j REJECT"},
	{"mangle", "mangle", "-j MARK --set-mark 1"},
	{"raw", "raw", "-j ACCEPT"},
}

// rules tries each rule by itself, so that the answer names those that do not work.
func rules(program string) try {
	return func(ctx context.Context, ns *netns.NS) (string, error) {
		backend := addressOf(program)
		var missing []string
		var why error
		for _, r := range serviceRules {
			// Targets that only some built-in chains allow are fine in a chain of ours.
			script := fmt.Sprintf("*%s\n:PROBE - [0:0]\n-A PROBE %s\nCOMMIT\n", r.table,
				strings.Replace(r.rule, "--to-destination ", "--to-destination "+backend, 1))
			if _, err := runIn(ctx, ns, script, program+"-restore", "--noflush"); err != nil {
				err = refused(err)
				if no := (*lack)(nil); !errors.As(err, &no) {
					return "", err
				}
				missing, why = append(missing, r.name), err
			}
		}
		if len(missing) > 0 {
			return "", &lack{strings.Join(missing, ", ") + ": " + why.Error()}
		}
		return fmt.Sprintf("all %d tables, matches and targets", len(serviceRules)), nil
	}
}

func addressOf(program string) string {
	if strings.HasPrefix(program, "ip6") {
		return "[2001:db8::1]:80"
	}
	return "192.0.2.1:80"
}

// conntrackEvents makes an entry and waits for the event of it.
func conntrackEvents(_ context.Context, ns *netns.NS) (string, error) {
	config := &netlink.Config{NetNS: ns.Fd()}
	listener, err := conntrack.Dial(config)
	if err != nil {
		return "", lacking(err)
	}
	defer listener.Close()
	events := make(chan conntrack.Event, 8)
	faults, err := listener.Listen(events, 1, []netfilter.NetlinkGroup{netfilter.GroupCTNew})
	if err != nil {
		return "", lacking(err)
	}
	writer, err := conntrack.Dial(config)
	if err != nil {
		return "", lacking(err)
	}
	defer writer.Close()
	from, to := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	flow := conntrack.NewFlow(unix.IPPROTO_UDP, 0, from, to, 1, 2, 60, 0)
	if err := writer.Create(flow); err != nil {
		return "", lacking(fmt.Errorf("make an entry: %w", err))
	}
	select {
	case <-events:
		return "", nil
	case err := <-faults:
		return "", err
	case <-time.After(eventLimit):
		return "", &lack{"an entry was made, and no event came"}
	}
}

// nftTrace sends a packet through a traced rule and waits for the trace.
func nftTrace(ctx context.Context, ns *netns.NS) (string, error) {
	lo, err := ns.Netlink().LinkByName("lo")
	if err == nil {
		err = ns.Netlink().LinkSetUp(lo)
	}
	if err != nil {
		return "", err
	}
	const traced = "table inet probe { chain c { type filter hook output priority 0; meta nftrace set 1; }; }"
	if _, err := runIn(ctx, ns, traced, "nft", "-f", "-"); err != nil {
		return "", refused(err)
	}
	trace, err := netfilter.Dial(&netlink.Config{NetNS: ns.Fd()})
	if err != nil {
		return "", lacking(err)
	}
	defer trace.Close()
	if err := trace.JoinGroups([]netfilter.NetlinkGroup{netfilter.GroupNFTrace}); err != nil {
		return "", lacking(err)
	}
	c, err := ns.Dial(ctx, "udp", netip.AddrPort{}, netip.MustParseAddrPort("127.0.0.1:9"))
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err := io.WriteString(c, "probe"); err != nil {
		return "", err
	}
	if err := trace.SetReadDeadline(time.Now().Add(eventLimit)); err != nil {
		return "", err
	}
	if _, err := trace.Receive(); errors.Is(err, os.ErrDeadlineExceeded) {
		return "", &lack{"a packet was traced, and no message came"}
	} else if err != nil {
		return "", err
	}
	return "", nil
}

// virtualServer makes an IPVS service and reads it back. Where the kernel has no IPVS some libraries report success, so
// only /proc/net/ip_vs counts. The socket options work in a user namespace too, netlink does not (Linux 6.1).
func virtualServer(ctx context.Context, ns *netns.NS) (string, error) {
	const table = "/proc/thread-self/net/ip_vs"
	read := func() (text string, err error) {
		err = ns.Do(func() error {
			b, err := os.ReadFile(table)
			text = string(b)
			return err
		})
		return text, err
	}
	if _, err := read(); err != nil {
		// Nothing loads the module by itself. If this fails, the table does not exist.
		_, _ = runIn(ctx, ns, "", "modprobe", "--quiet", "ip_vs_rr")
		if _, err := read(); err != nil {
			return "", lacking(err)
		}
	}
	fd, err := ns.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	// struct ip_vs_service_user of linux/ip_vs.h, with network byte order in addresses and ports.
	service := struct {
		protocol  uint16
		_         uint16
		addr      [4]byte
		port      [2]byte
		_         uint16
		fwmark    uint32
		scheduler [16]byte
		flags     uint32
		timeout   uint32
		netmask   [4]byte
	}{protocol: unix.IPPROTO_TCP, addr: [4]byte{192, 0, 2, 1}, netmask: [4]byte{255, 255, 255, 255}}
	binary.BigEndian.PutUint16(service.port[:], 80)
	copy(service.scheduler[:], "rr")
	const addService = 64 + 1024 + 64 + 2 // IP_VS_SO_SET_ADD
	if _, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.IPPROTO_IP, addService,
		uintptr(unsafe.Pointer(&service)), unsafe.Sizeof(service), 0); errno != 0 {
		return "", lacking(fmt.Errorf("make a service: %w", errno))
	}
	text, err := read()
	if err == nil && !strings.Contains(text, "C0000201:0050 rr") {
		err = &lack{"a service was made, and the kernel does not show it"}
	}
	return "", err
}

func ownUserNamespace() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
}
