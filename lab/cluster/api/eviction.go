// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"net/http"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/lab/cluster/store"
)

var evictionKind = policyv1.SchemeGroupVersion.WithKind("Eviction")

// evict deletes a pod if its PodDisruptionBudget allows that ("kubectl drain").
func (s *Server) evict(w http.ResponseWriter, r *request) error {
	if r.Method != http.MethodPost {
		return notAllowed(r)
	}
	how, strict, err := writeOptions(r, "")
	if err != nil {
		return err
	}
	in, err := decodeBody(w, r.Request, evictionKind, strict)
	if err != nil {
		return err
	}
	e := in.(*policyv1.Eviction)
	if name := cmp.Or(e.Name, r.key.Name); name != r.key.Name {
		return apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	}
	o := ptr.Deref(e.DeleteOptions, metav1.DeleteOptions{})
	err = s.store.Do(func(tx *store.Tx) error {
		err := tx.Evict(r.key.Namespace, r.key.Name, store.DeleteOptions{GracePeriod: o.GracePeriodSeconds})
		if err == nil && (how.dryRun || len(o.DryRun) > 0) {
			return errDryRun{}
		}
		return err
	})
	if err != nil && err != (errDryRun{}) {
		return err
	}
	f, err := negotiate(r.Request, false)
	if err != nil {
		return err
	}
	f.write(w, http.StatusCreated, &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess,
		Code: http.StatusCreated,
	})
	return nil
}
