// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import (
	"errors"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/suite/spec"
)

func TestNew(t *testing.T) {
	for _, c := range []struct {
		mode    Mode
		version string
		binary  string
		want    string // in the error; empty: none
	}{
		{IPTables, "", "", ""},
		{IPVS, "v1.30.4", "", ""},
		{NFTables, "v1.30.4", "", ""},
		{Userspace, "v1.25.9", "", ""},
		{Userspace, "", "", "went with v1.26"},
		{NFTables, "v1.25.9", "", "came with v1.29"},
		{IPTables, "1.36", "", "want one like v1.36.3"},
		{IPTables, "v1.36.3-rc.1", "", "want one like"},
		{IPTables, "v1.36.3", "/bin/true", "not both"},
		{IPTables, "", "/nowhere/kube-proxy", "no such file"},
		{IPTables, "", "/bin/true", "no release of Kubernetes"},
	} {
		p, err := New(c.mode, c.version, c.binary, "")
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s %s %s: %v, want %q", c.mode, c.version, c.binary, err, c.want)
			}
			continue
		}
		if err != nil || p.Name() != "kube-proxy-"+string(c.mode) {
			t.Errorf("%s %s: %v, %v", c.mode, c.version, p, err)
		}
	}
}

// The lines are those that kube-proxy's sources log, with the flags that the mode gets.
func TestRoundsOfEachMode(t *testing.T) {
	for line, want := range map[string]string{
		`] "Syncing ipvs proxier rules"`:                             "begins ",
		`] "Syncing ipvs proxier rules" ipFamily="IPv6"`:             "begins IPv6",
		`] "syncProxyRules complete" elapsed="1.2s"`:                 "ends ",
		`] "syncProxyRules complete" ipFamily="IPv4" elapsed="1.2s"`: "ends IPv4",
		`] "Syncing iptables rules" ipFamily="IPv4"`:                 "begins IPv4",
		`] "Syncing nftables rules" ipFamily="IPv4"`:                 "begins IPv4",
		`] "SyncProxyRules complete" ipFamily="IPv4" elapsed="1ms"`:  "ends IPv4",
		`] "Adding new service" serviceName="default/kubernetes"`:    "",
	} {
		got := ""
		r := IPVS.rounds()
		for name, pattern := range map[string]*regexp.Regexp{"begins ": r.Begins, "ends ": r.Ends} {
			if found := pattern.FindStringSubmatch(line); found != nil {
				got += name + found[1]
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	if Userspace.rounds() != nil {
		t.Error("the userspace mode has rounds")
	}
	for _, mode := range []Mode{IPTables, IPVS, NFTables} {
		if logs := slices.Contains(mode.arguments(36), "--vmodule=proxier=4"); logs != (mode == IPVS) {
			t.Errorf("%s: --vmodule %t", mode, logs)
		}
	}
}

func TestABinaryThatIsThere(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "kube-proxy")
	if err := os.WriteFile(binary, []byte("#!/bin/sh\necho Kubernetes v1.29.1-foo\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	p, err := New(NFTables, "", binary, NodeCIDR)
	if err != nil {
		t.Fatal(err)
	}
	if err := Prepare(t.Context(), p, nil); err != nil {
		t.Errorf("there is nothing to prepare: %v", err)
	}
	if mode, version, detect, ok := Release(p); mode != NFTables || version != "v1.29.1" || detect != NodeCIDR || !ok {
		t.Errorf("%s %s %s %t", mode, version, detect, ok)
	}
	if _, err := New(NFTables, "", binary, "Guess"); err == nil || !strings.Contains(err.Error(), "ClusterCIDR NodeCIDR") {
		t.Errorf("an unknown local detection: %v", err)
	}
}

func TestABinaryThatIsNotBuilt(t *testing.T) {
	t.Setenv("VIPLAB_CACHE", t.TempDir())
	p, err := New(IPTables, "", "", "")
	if err != nil {
		t.Fatal(err)
	}
	var unusable *spec.UnusableError
	if err := p.Usable(t.Context()); !errors.As(err, &unusable) ||
		!strings.Contains(unusable.Missing, "binary of kube-proxy v1.36.3") {
		t.Errorf("usable: %v", err)
	}
}

func TestArguments(t *testing.T) {
	for _, c := range []struct {
		mode  Mode
		minor int
		gate  bool
	}{{NFTables, 30, true}, {NFTables, 31, false}, {IPTables, 30, false}} {
		args := c.mode.arguments(c.minor)
		if slices.Contains(args, "--feature-gates=NFTablesProxyMode=true") != c.gate {
			t.Errorf("%s v1.%d: %q", c.mode, c.minor, args)
		}
	}
}

func TestSettingsAsFlags(t *testing.T) {
	at := netip.MustParseAddrPort("127.0.0.2:10356")
	ranges := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/64")}
	for _, c := range []struct {
		config spec.ProxyConfig
		want   string
	}{
		{spec.ProxyConfig{}, ""},
		{spec.ProxyConfig{NodePortAddresses: ranges}, "--nodeport-addresses=10.0.0.0/8,fd00::/64"},
		{spec.ProxyConfig{HealthzAddress: at, BindHardFail: true},
			"--bind-address-hard-fail --healthz-bind-address=127.0.0.2:10356"},
		{spec.ProxyConfig{MinSyncPeriod: new(time.Duration)}, "--iptables-min-sync-period=0s --ipvs-min-sync-period=0s"},
		{spec.ProxyConfig{IPVSExcludeCIDRs: ranges, IPVSTimeouts: spec.IPVSTimeouts{TCP: 1e9, TCPFin: 2e9, UDP: 3e9}},
			"--ipvs-exclude-cidrs=10.0.0.0/8,fd00::/64 --ipvs-tcp-timeout=1s --ipvs-tcpfin-timeout=2s --ipvs-udp-timeout=3s"},
	} {
		if got := strings.Join(configure(c.config, 36), " "); got != c.want {
			t.Errorf("%+v: %q, want %q", c.config, got, c.want)
		}
	}
}

// A file of settings has the bit of the nftables mode, for which there is no flag, and what flags say.
func TestSettingsInAFile(t *testing.T) {
	folder := t.TempDir()
	program := filepath.Join(folder, "kube-proxy") // writes what it reads to a file of settings, and shows one
	script := "#!/bin/sh\ncase $2 in --write-config-to=*) cat >${2#*=} ;; *) cat ${1#--config=} ;; esac\n"
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	const written = "iptables:\n  masqueradeBit: 7\n" +
		"nftables:\n  masqueradeAll: false\n  masqueradeBit: 14\nother:\n  masqueradeBit: 1\n"
	cmd := exec.Command("/bin/sh", "-c", fromFile, "settings", "5", program, "--v=2")
	cmd.Dir, cmd.Stdin = folder, strings.NewReader(written)
	got, err := cmd.CombinedOutput()
	if want := strings.Replace(written, "14", "5", 1); err != nil || string(got) != want {
		t.Errorf("%v: kube-proxy reads %q, want %q", err, got, want)
	}
}

func TestFeatures(t *testing.T) {
	for _, m := range Modes {
		for f := range m.features(36) {
			if !f.Known() {
				t.Errorf("%s declares %q, which no scenario knows", m, f)
			}
		}
	}
	for f, since := range map[spec.Feature]int{
		spec.TerminatingFallback: 26, spec.ProxierHealthz: 28, spec.HealthCheckBody: 28, spec.Topology: 31,
		spec.NodeHints: 34,
	} {
		if IPTables.features(since - 1)[f] || !IPTables.features(since)[f] {
			t.Errorf("%s: v1.%d and v1.%d declare %t and %t, want it since the second",
				f, since-1, since, IPTables.features(since - 1)[f], IPTables.features(since)[f])
		}
	}
}

func TestABuildWithoutGo(t *testing.T) {
	t.Setenv("PATH", "/nowhere")
	t.Setenv("VIPLAB_CACHE", t.TempDir())
	p, err := New(IPTables, "", "", "")
	if err != nil {
		t.Fatal(err)
	}
	var unusable *spec.UnusableError
	if err := Prepare(t.Context(), p, io.Discard); !errors.As(err, &unusable) {
		t.Errorf("got %v", err)
	}
}

func TestWhatCannotBeConfigured(t *testing.T) {
	dual := []lab.Family{lab.V4, lab.V6}
	for _, c := range []struct {
		mode Mode
		node spec.Node
		want string
	}{
		{Userspace, spec.Node{Families: dual}, "one IP family"},
		{IPTables, spec.Node{Families: dual, Config: spec.ProxyConfig{NoLocalhostNodePorts: true}},
			"--iptables-localhost-nodeports"},
	} {
		p, err := New(c.mode, "v1.25.9", "", "")
		if err != nil {
			t.Fatal(err)
		}
		var unusable *spec.UnusableError
		if _, err := p.Start(t.Context(), c.node); !errors.As(err, &unusable) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want that %q is missing", c.mode, err, c.want)
		}
	}
}

// TestNoDetectionServesNoClusterIPOutside: without a range of pods, kube-proxy masquerades no traffic to ClusterIPs.
func TestNoDetectionServesNoClusterIPOutside(t *testing.T) {
	for detect, want := range map[Detection]bool{ClusterCIDR: true, NodeCIDR: true, NoDetection: false} {
		p, err := New(IPTables, "", "", detect)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Features()[spec.ClusterIPFromOutside]; got != want {
			t.Errorf("%s: clusterip-from-outside %t, want %t", detect, got, want)
		}
	}
}
