// Rendered at most once a second.
export const revalidate = 1;

export default function Article() {
  const text = "All happy families are alike; each unhappy family is unhappy in its own way. ".repeat(60);
  return (
    <>
      <h1>article</h1>
      <p>{text}</p>
    </>
  );
}
