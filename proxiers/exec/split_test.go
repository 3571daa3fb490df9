// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/suite/spec"
)

func TestSplit(t *testing.T) {
	t.Setenv("FOLDER", "/opt/my proxy")
	for _, c := range []struct {
		line string
		want []string
	}{
		{`proxy`, []string{"proxy"}},
		{"  ./my-proxy\t--a=1  -b ", []string{"./my-proxy", "--a=1", "-b"}},
		{`p 'a b' "c d" e\ f ''`, []string{"p", "a b", "c d", "e f", ""}},
		{`"$FOLDER/proxy" --log '$HOME'`, []string{"/opt/my proxy/proxy", "--log", "$HOME"}},
		{`p --kubeconfig={{.Kubeconfig}} "--node={{ .NodeName }}"`,
			[]string{"p", "--kubeconfig={{.Kubeconfig}}", "--node={{ .NodeName }}"}},
		{`sh -c 'exec proxy >log 2>&1'`, []string{"sh", "-c", "exec proxy >log 2>&1"}},
	} {
		got, err := Split(c.line)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, %v; want %q", c.line, got, err, c.want)
		}
	}
}

func TestSplitErrors(t *testing.T) {
	for _, line := range []string{"", "  ", "p | tee x", "p >x", "p; q", "p `date`", `p 'a`, `p "a`} {
		if got, err := Split(line); err == nil || !strings.Contains(err.Error(), "no shell runs it") {
			t.Errorf("%s: %q, %v; want an error", line, got, err)
		}
	}
}

func TestNew(t *testing.T) {
	for _, c := range []struct {
		command Command
		want    string // in the error; empty: none
	}{
		{Command{Name: "mine", Argv: []string{"p", "{{.Kubeconfig}} {{.NodeName}} {{.NodeIP}} {{.NodeIPs}}",
			"{{.PodCIDR}} {{.ClusterCIDR}} {{.ServiceCIDR}} {{.StateDir}}"}}, ""},
		{Command{Name: "mine", Argv: []string{"p", "{{.KubeConfig}}"}}, "can't evaluate field KubeConfig"},
		{Command{Name: "mine", Argv: []string{"p", "{{.NodeName"}}, "unclosed action"},
		{Command{Name: "mine", Argv: []string{"p", "{{nodename}}"}}, "not defined"},
		{Command{Name: "my proxy", Argv: []string{"p"}}, "lower case"},
		{Command{Name: "mine"}, "no command"},
	} {
		_, err := New(c.command)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%q: %v, want %q", c.command.Argv, err, c.want)
		}
	}
}

func TestSettings(t *testing.T) {
	all, err := parseWords([]string{"p", "", "{{if .MasqueradeAll}}--masquerade-all{{end}}",
		"--metrics={{.MetricsAddress}}", "--healthz={{.HealthzAddress}}", "{{with .NodePortAddresses}}--addresses={{.}}{{end}}",
		"--idle={{.Conntrack.TCPEstablished}}"})
	if err != nil {
		t.Fatal(err)
	}
	config := spec.ProxyConfig{MasqueradeAll: true, MetricsAddress: netip.MustParseAddrPort("127.0.0.1:9"),
		HealthzAddress:    netip.MustParseAddrPort("127.0.0.1:8"),
		NodePortAddresses: []netip.Prefix{netip.MustParsePrefix("fd00::/64"), netip.MustParsePrefix("10.0.0.0/8")},
		Conntrack:         spec.ConntrackConfig{TCPEstablished: time.Hour}}
	families := []lab.Family{lab.V4, lab.V6}
	for want, config := range map[string]spec.ProxyConfig{
		"p||--metrics=|--healthz=|--idle=0s": {},
		"p||--masquerade-all|--metrics=127.0.0.1:9|--healthz=127.0.0.1:8|--addresses=10.0.0.0/8,fd00::/64|--idle=1h0m0s": config,
	} {
		got, err := all.fill(Values{}.with(config, families))
		if err != nil || strings.Join(got, "|") != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	config.SyncPeriod, config.MasqueradeBit = time.Second, 5
	if got := all.unmentioned(config); !slices.Equal(got, []string{"MasqueradeBit", "SyncPeriod"}) {
		t.Errorf("unmentioned: %v", got)
	}
}
