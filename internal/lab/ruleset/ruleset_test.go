// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"fmt"
	"net/netip"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"

	. "github.com/viplab/viplab/internal/lab/nstest"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/sandbox"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

// mixed is what several programs have left in one namespace.
const mixed = `
nft -f - <<'END'
table inet t {
	counter c { packets 0 bytes 0
	}
	map m {
		type ipv4_addr . inet_proto . inet_service : verdict; counter
		comment "frontends"
		elements = { 10.96.0.1 . tcp . 80 comment "a/b: c, } d" : goto x, 10.96.0.2 . udp . 53 : drop }
	}
	chain x {
		comment "to an endpoint"
		meta l4proto tcp counter packets 3 bytes 180 dnat ip to numgen random mod 2 map { 0 : 10.0.0.1 . 80, 1 : 10.0.0.2 . 81 } comment "jump # y"
	}
	chain y {
		numgen random mod 3 vmap { 0 : goto x, 1 : drop, 2 : jump z }
	}
	chain z {
	}
	chain pre {
		type nat hook prerouting priority -90; policy accept
		jump y
		ip daddr . meta l4proto . th dport vmap @m
	}
}
END
iptables-nft -t nat -N KUBE-SERVICES
iptables-nft -t nat -A KUBE-SERVICES -d 10.96.0.9 -p tcp -m comment --comment "x/y -j DROP" -m tcp --dport 80 -j ACCEPT
iptables-nft -t nat -A PREROUTING -j KUBE-SERVICES
ip6tables-nft -A FORWARD -m conntrack --ctstate NEW -j DROP
iptables-legacy -t raw -A PREROUTING -j ACCEPT
`

// made returns a namespace in which a script of the shell has run.
func made(t *testing.T, script string) *netns.NS {
	t.Helper()
	for _, program := range []string{"nft", "iptables-nft", "iptables-legacy"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	ns := NewNS(t, "n")
	if out, err := runIn(ns, "sh", "-ec", script); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return ns
}

func runIn(ns *netns.NS, argv ...string) (string, error) {
	var out strings.Builder
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := ns.Run(cmd)
	return out.String(), err
}

func TestReadKnowsEveryProgram(t *testing.T) {
	ns := made(t, mixed)
	r, err := Read(t.Context(), ns)
	Must(t, err)
	var met []string
	for _, hook := range Hooks {
		for _, s := range r.At(hook, IP) {
			if s.Table == nil {
				met = append(met, fmt.Sprintf("%s %d kernel", hook, s.Priority))
				continue
			}
			for _, c := range s.Table.Reached(s.Chain, map[*Chain]bool{}) {
				met = append(met, fmt.Sprintf("%s %d %s %s %s", hook, s.Priority, s.Table.Backend, s.Table.Name, c.Name))
			}
		}
	}
	want := []string{
		"prerouting -300 iptables-legacy raw PREROUTING",
		"prerouting -200 kernel",
		"prerouting -100 iptables-nft nat PREROUTING",
		"prerouting -100 iptables-nft nat KUBE-SERVICES",
		"prerouting -90 nftables t pre",
		"prerouting -90 nftables t y",
		"prerouting -90 nftables t x",
		"prerouting -90 nftables t z",
		"input 2147483647 kernel",
		"output -300 iptables-legacy raw OUTPUT",
		"output -200 kernel",
		"postrouting 2147483647 kernel",
	}
	if !slices.Equal(met, want) {
		t.Errorf("met\n%s\nwant\n%s", strings.Join(met, "\n"), strings.Join(want, "\n"))
	}
	if six := r.At("forward", IP6); len(six) != 1 || six[0].Chain.Rules[0].Text != "-A FORWARD -m conntrack --ctstate NEW -j DROP" {
		t.Errorf("IPv6 forward: %+v", six)
	}
}

func TestReadKnowsRulesAndElements(t *testing.T) {
	ns := made(t, mixed)
	r, err := Read(t.Context(), ns)
	Must(t, err)
	i := slices.IndexFunc(r.Tables, func(t *Table) bool { return t.Name == "t" })
	table := r.Tables[i]
	x := table.Chain("x")
	if x.Comment != "to an endpoint" || len(x.Rules) != 1 || x.Rules[0].Handle == 0 || x.Rules[0].Jumps != nil ||
		*x.Rules[0].Counters != (Counters{3, 180}) || !strings.HasPrefix(x.Rules[0].Text, "meta l4proto tcp counter dnat ip to ") {
		t.Errorf("chain x: %+v, rule %+v", x, x.Rules[0])
	}
	m := table.Set("m")
	slices.SortFunc(m.Elements, func(a, b Element) int { return strings.Compare(a.Text, b.Text) })
	want := []Element{
		{Text: `10.96.0.1 . tcp . 80 comment "a/b: c, } d" : goto x`, Counters: &Counters{}, Jump: "x"},
		{Text: `10.96.0.2 . udp . 53 : drop`, Counters: &Counters{}},
	}
	if m.Comment != "frontends" || !reflect.DeepEqual(m.Elements, want) {
		t.Errorf("map m: %+v", m)
	}
	var text strings.Builder
	Must(t, r.Print(&text, IP, IP6))
	for _, want := range []string{
		"=== IPv4 prerouting: a packet has arrived, before the routing decision\n\n[-300] iptables-legacy: table ip raw, chain PREROUTING",
		"\n  chain x: to an endpoint\n      3      180  meta l4proto tcp counter dnat",
		`-A KUBE-SERVICES -d 10.96.0.9/32 -p tcp -m comment --comment "x/y -j DROP" -m tcp --dport 80 -j ACCEPT`,
		"table inet t, chain pre (policy accept), as above\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("Print lacks %q:\n%s", want, text.String())
		}
	}
}

func TestDiff(t *testing.T) {
	ns := made(t, mixed)
	old, err := Read(t.Context(), ns)
	Must(t, err)
	if found, err := Diff(new(strings.Builder), old, old, true); found || err != nil {
		t.Errorf("a ruleset differs from itself: %v", err)
	}
	if out, err := runIn(ns, "sh", "-ec", `
		iptables-nft -t nat -I OUTPUT -d 127.0.0.9 -j ACCEPT
		iptables-nft -t nat -F KUBE-SERVICES
		ip6tables-nft -F FORWARD
		nft add element inet t m '{ 10.96.0.3 . tcp . 80 : goto x }'`); err != nil {
		t.Fatal(out)
	}
	changed, err := Read(t.Context(), ns)
	Must(t, err)
	var text strings.Builder
	found, err := Diff(&text, old, changed, true)
	Must(t, err)
	want := `iptables-nft: table ip nat, chain OUTPUT
  + (new)
  + -A OUTPUT -d 127.0.0.9/32 -j ACCEPT
  + hook output, priority -100, policy accept
iptables-nft: table ip nat, chain KUBE-SERVICES
  - -A KUBE-SERVICES -d 10.96.0.9/32 -p tcp -m comment --comment "x/y -j DROP" -m tcp --dport 80 -j ACCEPT
nftables: table inet t, map m
  + 10.96.0.3 . tcp . 80 : goto x
iptables-nft: table ip6 filter, chain FORWARD
  - (gone)
  - -A FORWARD -m conntrack --ctstate NEW -j DROP
  - hook forward, priority 0, policy accept
`
	if !found || text.String() != want {
		t.Errorf("got\n%s\nwant\n%s", text.String(), want)
	}
	Up(t, ns, "lo")
	conn, err := ns.Dial(t.Context(), "udp", netip.AddrPort{}, netip.MustParseAddrPort("127.0.0.9:9"))
	Must(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte("hello"))
	Must(t, err)
	later, err := Read(t.Context(), ns)
	Must(t, err)
	text.Reset()
	found, err = Diff(&text, changed, later, true)
	Must(t, err)
	if want := "iptables-nft: table ip nat, chain OUTPUT\n  +1 packets, +33 bytes: -A OUTPUT -d 127.0.0.9/32 -j ACCEPT\n"; !found ||
		!strings.Contains(text.String(), want) {
		t.Errorf("got\n%s\nwant\n%s", text.String(), want)
	}
	if found, _ := Diff(new(strings.Builder), changed, later, false); found {
		t.Error("counters differ although they do not count")
	}
}

func TestServers(t *testing.T) {
	got, err := parseServers(`IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
TCP  0A60000A:0050 rr persistent 10800 FFFFFFFF
  -> 0AF40202:1F90      Masq    1      2          3
UDP  [fd00:0010:0096:0000:0000:0000:0000:000a]:0035 wlc
  -> [fd00:0010:0244:0002:0000:0000:0000:0002]:0035      Masq    0      0          0
FWM  00000010 rr
`)
	want := []*Server{
		{Proto: "tcp", At: netip.MustParseAddrPort("10.96.0.10:80"), Scheduler: "rr", Flags: "persistent 10800 FFFFFFFF",
			Real: []RealServer{{At: netip.MustParseAddrPort("10.244.2.2:8080"), Forward: "Masq", Weight: 1, Active: 2, Inactive: 3}}},
		{Proto: "udp", At: netip.MustParseAddrPort("[fd00:10:96::a]:53"), Scheduler: "wlc",
			Real: []RealServer{{At: netip.MustParseAddrPort("[fd00:10:244:2::2]:53"), Forward: "Masq"}}},
		{Proto: "fwmark", Mark: 16, Scheduler: "rr"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	r := Ruleset{Servers: got}
	var text strings.Builder
	Must(t, r.Print(&text, IP))
	if want := "tcp 10.96.0.10:80 rr persistent 10800 FFFFFFFF\n                    -> 10.244.2.2:8080 Masq weight 1, 2 active, 3 inactive\n"; !strings.Contains(text.String(), want) {
		t.Errorf("Print lacks %q:\n%s", want, text.String())
	}
}

func TestSockets(t *testing.T) {
	ns := NewNS(t, "n")
	Up(t, ns, "lo")
	four, err := ns.Listen(t.Context(), "tcp4", "127.0.0.1:8081")
	Must(t, err)
	defer four.Close()
	six, err := ns.ListenPacket(t.Context(), "udp6", "[::1]:8082")
	Must(t, err)
	defer six.Close()
	r, err := Read(t.Context(), ns)
	Must(t, err)
	if got := fmt.Sprint(r.Sockets); got != "[tcp 127.0.0.1:8081 udp [::1]:8082]" {
		t.Error(got)
	}
}
