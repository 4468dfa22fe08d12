// What the signed-in principal may do on these pages. Pure.
export const mayWrite = (who) => who.roles.some((role) => role !== "viewer");
