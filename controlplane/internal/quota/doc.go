// Package quota shares out fleet-wide rates.
package quota
