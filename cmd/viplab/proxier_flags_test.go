// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/viplab/viplab/proxiers/exec"
	"github.com/viplab/viplab/suite/spec"
)

// parse reads flags as "viplab conform" does.
func parse(t *testing.T, words ...string) (*proxierFlags, []spec.Proxier, error) {
	t.Helper()
	f, cmd := &proxierFlags{}, &cobra.Command{Use: "conform"}
	f.add(cmd, "iptables")
	if err := cmd.Flags().Parse(words); err != nil {
		t.Fatal(err)
	}
	found, err := f.proxiers()
	_, unknown := f.enforcer()
	return f, found, errors.Join(err, unknown)
}

// The command that runs a failure again names the same proxier with the same claims, and the same enforcer.
func TestTheCommandToRunAgainNamesTheSameProxier(t *testing.T) {
	for _, c := range []struct{ words, names []string }{
		{nil, []string{"iptables"}},
		{[]string{"--proxier", "iptables,none"}, []string{"iptables", "none"}},
		{[]string{"--proxier", "nftables", "--enforcer", "policy-nftables"}, []string{"nftables"}},
		{[]string{"--proxier", "kube-proxy-userspace", "--kube-proxy-version", "v1.25.9"}, []string{"kube-proxy-userspace"}},
		{[]string{"--proxier", "kube-proxy-nftables", "--detect-local-mode", "NodeCIDR"}, []string{"kube-proxy-nftables"}},
		{[]string{"--exec", "sh -c 'exec my-proxy \"{{.Kubeconfig}}\"'"}, []string{"sh"}},
		{[]string{"--exec", "/bin/my-proxy", "--name", "mine", "--features", "-sctp,+iptables", "--proxier", "iptables"},
			[]string{"iptables", "mine"}},
	} {
		f, found, err := parse(t, c.words...)
		if err != nil || len(found) != len(c.names) {
			t.Fatalf("%q: %d proxiers, %v", c.words, len(found), err)
		}
		for i, p := range found {
			words, err := exec.Split(f.quoted(p)) // as a shell does
			if err != nil {
				t.Fatal(err)
			}
			g, again, err := parse(t, words...)
			if err != nil || g.enforcerName != f.enforcerName || len(again) != 1 || again[0].Name() != c.names[i] ||
				!slices.Equal(again[0].Features().List(), p.Features().List()) {
				t.Errorf("%q: %s gives %v, %v; want %s alone, with the same features", c.words, f.quoted(p), again, err, c.names[i])
			}
		}
	}
}

func TestMistakesInWhatToJudge(t *testing.T) {
	for _, c := range []struct {
		words []string
		want  string
	}{
		{[]string{"--proxier", "iptable"}, `unknown proxier "iptable", did you mean "iptables"?`},
		{[]string{"--proxier", "kube-proxy-nftables", "--kube-proxy-version", "v1.25.9"}, "came with v1.29"},
		{[]string{"--proxier", "kube-proxy-userspace"}, "went with v1.26"},
		{[]string{"--proxier", "kube-proxy-iptables", "--kube-proxy-version", "1.36"}, `version "1.36": want one like v1.`},
		{[]string{"--proxier", "kube-proxy-iptables", "--kube-proxy-binary", "/no/such/binary"}, "no such file"},
		{[]string{"--exec", "p | tee log"}, "no shell runs it"},
		{[]string{"--exec", ""}, "it is empty"},
		{[]string{"--exec", "p --config {{.KubeConfig}}"}, "KubeConfig"},
		{[]string{"--exec", "/bin/p", "--features", "-sctps"}, `unknown feature "sctps"`},
		{[]string{"--exec", "/bin/p", "--features", "sctp"}, "want +sctp or -sctp"},
		{[]string{"--enforcer", "calico"}, `unknown enforcer "calico": there are policy-nftables`},
		{[]string{"--name", "mine"}, "--name, --features and --exec-version require --exec"},
		{[]string{"--detect-local-mode", "NodeCIDR"}, "--detect-local-mode is for kube-proxy"},
		{[]string{"--proxier", "nftables,ipvs", "--kube-proxy-version", "v1.35.0"},
			"--kube-proxy-version is for kube-proxy, and none of nftables, ipvs is one: add --proxier kube-proxy-iptables"},
		{[]string{"--exec", "/bin/p", "--kube-proxy-binary", "/bin/p"}, "--kube-proxy-binary is for kube-proxy, and none of p"},
		{[]string{"--enforcer", ""}, "--enforcer: it is empty: name one (policy-nftables, policy-calico), or omit the flag"},
		{[]string{"--proxier", ""}, "--proxier: it is empty: name one (iptables,"},
		{[]string{"--proxier", "kube-proxy-ipvs", "--detect-local-mode", "x"}, `local detection "x": want one of`},
	} {
		_, _, err := parse(t, c.words...)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.words, err, c.want)
		}
	}
}
