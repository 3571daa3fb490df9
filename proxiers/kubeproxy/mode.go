// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"time"

	"github.com/viplab/viplab/internal/proxiers/kit"
	"github.com/viplab/viplab/suite/spec"

	blackbox "github.com/viplab/viplab/proxiers/exec"
)

// exists returns an error if a release lacks the mode.
func (m Mode) exists(minor int) error {
	switch {
	case m == NFTables && minor < 29:
		return fmt.Errorf("the nftables mode came with v1.29 (KEP-3866)")
	case m == Userspace && minor > 25:
		return fmt.Errorf("the userspace mode went with v1.26")
	}
	return nil
}

// other returns the mode that can take over from this one, and this one from it, without manual steps. It returns "" if
// there is none (platformCleanup in cmd/kube-proxy/app/server_linux.go).
func (m Mode) other() Mode {
	return map[Mode]Mode{IPTables: NFTables, NFTables: IPTables}[m]
}

// arguments returns the flags for the mode in a release. All other settings keep their defaults, including the pause of
// one second between two syncs, so that viplab judges what clusters run.
func (m Mode) arguments(minor int) []string {
	args := []string{
		"--kubeconfig={{.Kubeconfig}}",
		"--hostname-override={{.NodeName}}",
		"--proxy-mode=" + string(m),
		// The conntrack table's size belongs to the machine, not to the node: kube-proxy would fail to set it, and
		// exit.
		"--conntrack-max-per-core=0",
		// To set the default, -999, needs CAP_SYS_RESOURCE.
		"--oom-score-adj=0",
		"-v=2",
	}
	if m == IPVS { // see rounds
		args = append(args, "--vmodule=proxier=4")
	}
	return append(args, m.gates(minor)...)
}

// nftablesFlags is the minor release since which flags configure the nftables mode in full. It has been beta, on by
// default, since then.
const nftablesFlags = 31

// gates returns the flag that makes the mode available in a release, if it needs one.
func (m Mode) gates(minor int) []string {
	if m == NFTables && minor < nftablesFlags {
		return []string{"--feature-gates=NFTablesProxyMode=true"}
	}
	return nil
}

// rounds returns the log lines of a round (syncProxyRules in pkg/proxy/{iptables,ipvs,nftables}/proxier.go, v1.25 to
// v1.36), of verbosity 2 or, in the ipvs mode, 3 and 4. A round begins before kube-proxy programs anything. It ends
// when rules are written, health check ports are open and stale flows are removed. The families sync concurrently;
// since v1.31 each line names its family. The userspace mode does not log when a round begins, so rounds returns nil.
func (m Mode) rounds() *blackbox.Rounds {
	if m == Userspace {
		return nil
	}
	return &blackbox.Rounds{Begins: roundBegins, Ends: roundEnds}
}

var (
	roundBegins = regexp.MustCompile(`"Syncing (?:iptables|ipvs proxier|nftables) rules"(?: ipFamily="(\w+)")?`)
	roundEnds   = regexp.MustCompile(`"[Ss]yncProxyRules complete"(?: ipFamily="(\w+)")?`)
)

// configure translates a configuration to the flags of a release. It leaves out flags that the release does not have.
func configure(c spec.ProxyConfig, minor int) []string {
	var args []string
	add := func(condition bool, flag string) {
		if condition {
			args = append(args, flag)
		}
	}
	list := func(ranges []netip.Prefix, flag string) {
		var text []string
		for _, p := range ranges {
			text = append(text, p.String())
		}
		add(len(text) > 0, flag+strings.Join(text, ","))
	}
	add(c.MasqueradeAll, "--masquerade-all")
	list(c.NodePortAddresses, "--nodeport-addresses=")
	add(c.NoExternalIPs, "--feature-gates=AllowServiceExternalIPs=false")
	add(c.NoLocalhostNodePorts, "--iptables-localhost-nodeports=false")
	add(c.IPVSScheduler != "", "--ipvs-scheduler="+c.IPVSScheduler)
	add(c.IPVSStrictARP, "--ipvs-strict-arp")
	list(c.IPVSExcludeCIDRs, "--ipvs-exclude-cidrs=")
	add(c.IPVSTimeouts.TCP > 0, "--ipvs-tcp-timeout="+c.IPVSTimeouts.TCP.String())
	add(c.IPVSTimeouts.TCPFin > 0, "--ipvs-tcpfin-timeout="+c.IPVSTimeouts.TCPFin.String())
	add(c.IPVSTimeouts.UDP > 0, "--ipvs-udp-timeout="+c.IPVSTimeouts.UDP.String())
	if c.SyncPeriod > 0 { // each mode ignores the other flag
		args = append(args, "--iptables-sync-period="+c.SyncPeriod.String(), "--ipvs-sync-period="+c.SyncPeriod.String())
	}
	if c.MinSyncPeriod != nil { // the same
		period := c.MinSyncPeriod.String()
		args = append(args, "--iptables-min-sync-period="+period, "--ipvs-min-sync-period="+period)
	}
	timeout := func(d time.Duration, which string) { add(d > 0, "--conntrack-"+which+"="+d.String()) }
	timeout(c.Conntrack.TCPEstablished, "tcp-timeout-established")
	timeout(c.Conntrack.TCPCloseWait, "tcp-timeout-close-wait")
	if minor >= conntrackFlags {
		timeout(c.Conntrack.UDP, "udp-timeout")
		timeout(c.Conntrack.UDPStream, "udp-timeout-stream")
		add(c.Conntrack.TCPBeLiberal, "--conntrack-tcp-be-liberal")
	}
	add(c.NodePortsOnPrimary && minor >= 31, "--nodeport-addresses=primary")
	add(c.MasqueradeBit > 0, fmt.Sprintf("--iptables-masquerade-bit=%d", c.MasqueradeBit))
	add(c.MetricsAddress.IsValid(), "--metrics-bind-address="+c.MetricsAddress.String())
	add(c.BindHardFail, "--bind-address-hard-fail")
	add(c.HealthzAddress.IsValid(), "--healthz-bind-address="+c.HealthzAddress.String())
	return args
}

// programs lists the programs that the mode runs. The nftables mode uses iptables only to clean up after other modes,
// and works without it.
var programs = map[Mode][]string{
	IPTables:  {"iptables-restore", "ip6tables-restore"},
	IPVS:      {"iptables-restore", "ip6tables-restore", "ipset"},
	NFTables:  {"nft"},
	Userspace: {"iptables", "ip6tables"},
}

// packages are the packages of programs; iptables has all others.
var packages = map[string]string{"ipset": "ipset", "nft": "nftables"}

// usable returns an error that names what the mode lacks on this machine.
func (m Mode) usable(ctx context.Context) error {
	for _, name := range programs[m] {
		if _, err := kit.LookUp(name, cmp.Or(packages[name], "iptables")); err != nil {
			return err
		}
	}
	if m == IPVS {
		return kit.NeedKernel(ctx, "ip_vs", "dummy")
	}
	return nil
}
