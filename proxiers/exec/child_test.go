// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	osexec "os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// childVariable makes this binary a small proxier: it lists Services and slices over and over and writes one nftables
// rule for each endpoint. Words in the variable make it misbehave.
const childVariable = "VIPLAB_TEST_CHILD"

// child is such a command.
func child(manner string) []string {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return []string{"env", childVariable + "=" + manner, self}
}

func runChild() int {
	manner := os.Getenv(childVariable)
	if strings.Contains(manner, "deaf") {
		signal.Ignore(syscall.SIGTERM)
	}
	fmt.Println("small proxier of", os.Getenv("NODE_NAME"), "is up")
	c, err := newClient(os.Getenv("KUBECONFIG"))
	if err != nil {
		fmt.Println(err)
		return 4
	}
	if err := c.report("Starting", "a small proxier of "+os.Getenv("NODE_NAME")); err != nil {
		fmt.Println(err)
		return 7
	}
	tick := time.NewTicker(10 * time.Millisecond)
	for last := ""; ; <-tick.C {
		rules, poison, err := c.rules(strings.Contains(manner, "narrow"))
		switch {
		case err != nil:
			fmt.Println(err)
			return 5
		case poison && strings.Contains(manner, "frail"):
			fmt.Println("panic: poison")
			return 3
		case rules == last:
			continue
		}
		fmt.Println("round begins")
		cmd := osexec.Command("nft", "-f", "-")
		cmd.Stdin = strings.NewReader(rules)
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Println(err, string(out))
			return 6
		}
		if strings.Contains(manner, "tidy") {
			if err := tidyUp(rules); err != nil {
				fmt.Println(err)
				return 8
			}
		}
		if !poison || !strings.Contains(manner, "endless") {
			fmt.Println("round ends")
		}
		last = rules
	}
}

// tidied is what a tidy child leaves in its folder at the end of a round.
const tidied = "tidied"

// tidyUp does some more work after packets are led as they should be.
func tidyUp(rules string) error {
	for range 5 {
		if err := osexec.Command("nft", "list", "ruleset").Run(); err != nil {
			return err
		}
	}
	return os.WriteFile(tidied, []byte(rules), 0o600)
}

type client struct {
	http       *http.Client
	url, token string
}

func newClient(kubeconfig string) (*client, error) {
	text, err := os.ReadFile(kubeconfig)
	if err != nil {
		return nil, err
	}
	var config struct {
		Clusters []struct {
			Cluster struct {
				Server string `json:"server"`
				CA     string `json:"certificate-authority-data"`
			} `json:"cluster"`
		} `json:"clusters"`
		Users []struct {
			User struct {
				Token string `json:"token"`
			} `json:"user"`
		} `json:"users"`
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		return nil, err
	}
	ca, err := base64.StdEncoding.DecodeString(config.Clusters[0].Cluster.CA)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	return &client{
		http: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}},
		url:  config.Clusters[0].Cluster.Server, token: config.Users[0].User.Token,
	}, nil
}

func (c *client) list(path string, into any) error {
	return c.ask("GET", path, nil, http.StatusOK, into)
}

// report posts an Event about the node.
func (c *client) report(reason, message string) error {
	e := corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: "small-"},
		InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: os.Getenv("NODE_NAME")},
		Type:           corev1.EventTypeNormal, Reason: reason, Message: message,
	}
	body, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return c.ask("POST", "/api/v1/namespaces/default/events", bytes.NewReader(body), http.StatusCreated, &e)
}

func (c *client) ask(method, path string, body io.Reader, want int, into any) error {
	req, err := http.NewRequest(method, c.url+path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != want {
		return fmt.Errorf("%s: %s", path, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// rules is the ruleset for the cluster as it is, for IPv4 alone if only4 is set, and whether there is a Service named
// poison.
func (c *client) rules(only4 bool) (text string, poison bool, err error) {
	var services corev1.ServiceList
	var slices discoveryv1.EndpointSliceList
	if err := c.list("/api/v1/services", &services); err != nil {
		return "", false, err
	}
	if err := c.list("/apis/discovery.k8s.io/v1/endpointslices", &slices); err != nil {
		return "", false, err
	}
	var b bytes.Buffer
	fmt.Fprintln(&b, "table inet small {}\ndelete table inet small\ntable inet small { chain out { type nat hook "+
		"output priority -100;")
	for _, s := range services.Items {
		poison = poison || s.Name == "poison"
		for _, e := range slices.Items {
			if only4 && e.AddressType == discoveryv1.AddressTypeIPv6 {
				continue
			}
			if e.Namespace == s.Namespace && e.Labels[discoveryv1.LabelServiceName] == s.Name && len(e.Endpoints) > 0 {
				writeRule(&b, s.Spec, e)
			}
		}
	}
	fmt.Fprintln(&b, "}\n}")
	return b.String(), poison, nil
}

func writeRule(b *bytes.Buffer, s corev1.ServiceSpec, e discoveryv1.EndpointSlice) {
	to := netip.MustParseAddr(e.Endpoints[0].Addresses[0])
	family := "ip"
	if to.Is6() {
		family = "ip6"
	}
	for _, vip := range s.ClusterIPs {
		if a, err := netip.ParseAddr(vip); err == nil && a.Is4() == to.Is4() {
			fmt.Fprintf(b, "%s daddr %s tcp dport %d dnat %s to %s\n", family, a, s.Ports[0].Port, family,
				netip.AddrPortFrom(to, uint16(*e.Ports[0].Port)))
		}
	}
}
