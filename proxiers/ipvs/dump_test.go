// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/internal/proxiers/proxiertest"
	"github.com/viplab/viplab/lab"
)

// TestIpvsadmShowsServices: ipvsadm -Ln on a node shows the Services, and the dump says the same of them.
func TestIpvsadmShowsServices(t *testing.T) {
	node := proxiertest.UpNode(t, lab.V4, lab.V6)
	in := start(t, node)
	s := proxiertest.Cluster(2, 2)
	s.Services[1].Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	proxiertest.Apply(t, in, s)
	command := exec.CommandContext(t.Context(), "ipvsadm", "-Ln")
	var shown, dumped strings.Builder
	command.Stdout = &shown
	if err := node.Host.NS.Run(command); err != nil {
		t.Fatal(err)
	}
	if err := in.Dump(t.Context(), &dumped); err != nil {
		t.Fatal(err)
	}
	t.Logf("ipvsadm -Ln:\n%s", &shown)
	want := []string{
		"TCP 10.96.0.1:80 rr",
		"TCP 10.96.0.1:80 rr -> 10.244.0.1:8080 Masq 1 0 0",
		"TCP 10.96.0.1:80 rr -> 10.244.0.2:8080 Masq 1 0 0",
		"TCP 10.96.0.2:80 rr", // rules serve it, since it has session affinity
		"TCP [fd00:10:96::1]:80 rr",
		"TCP [fd00:10:96::1]:80 rr -> [fd00:10:244::1]:8080 Masq 1 0 0",
		"TCP [fd00:10:96::1]:80 rr -> [fd00:10:244::2]:8080 Masq 1 0 0",
		"TCP [fd00:10:96::2]:80 rr",
	}
	expectLines(t, "ipvsadm", serversIn(shown.String()), want)
	expectLines(t, "dump", serversIn(dumped.String()), want)
	if whose := regexp.MustCompile(`(?m)^TCP +10\.96\.0\.1:80 rr +# test/svc-00000:http cluster IP$`); !whose.MatchString(dumped.String()) {
		t.Errorf("the dump does not tell whose 10.96.0.1:80 is:\n%s", &dumped)
	}
}

// serversIn are the virtual servers in a listing, and their destinations, each after its server's line.
func serversIn(listing string) []string {
	var out []string
	server := ""
	for line := range strings.Lines(listing) {
		line, _, _ = strings.Cut(line, "#") // whose it is
		line = strings.Join(strings.Fields(line), " ")
		switch {
		case strings.HasPrefix(line, "Prot "):
			server = "" // the head of a family's list
		case strings.HasPrefix(line, "TCP "):
			server = line
			out = append(out, server)
		case strings.HasPrefix(line, "-> ") && server != "":
			out = append(out, server+" "+line)
		}
	}
	return out
}
